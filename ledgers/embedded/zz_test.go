package embedded
import ("testing";"os")
func Dump(l *Ledger) string { return l.db.Metrics().String() }
var _ = testing.Short
var _ = os.Getenv
