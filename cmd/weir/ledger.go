package main

import "fmt"

// driverEmbedded is the ledger in this process.
const driverEmbedded = "embedded"

// checkDriver refuses a driver that this build does not have.
func checkDriver(name string) error {
	switch name {
	case driverEmbedded:
		return nil
	case "tigerbeetle":
		return fmt.Errorf("%q: this build has no such driver: use %s", name, driverEmbedded)
	default:
		return fmt.Errorf("%q: want %s", name, driverEmbedded)
	}
}
