package accounts

import (
	"slices"
	"testing"

	"weir/ledgers"
)

// The golden values were computed apart from this code, from the rule alone: SHA-256 over the
// namespace's 16 bytes and the parts, each behind its length in 4 bytes, most significant first;
// the first 16 bytes of that with version 8 and the RFC 9562 variant. They are a published promise.
func TestGoldenIDs(t *testing.T) {
	ns, err := ParseNamespace("6ba7b810-9dad-11d1-80b4-00c04fd430c8")
	if err != nil {
		t.Fatal(err)
	}
	alice := ns.UserAccount("api", "alice")
	site := ns.UserAccount("site", "all")
	one := []Charge{{Limit: Limit{Name: "api"}, Subject: "alice", Amount: 3, account: alice}}
	two := append(slices.Clone(one), Charge{Limit: Limit{Name: "site"}, Subject: "all", account: site})
	check := ns.attemptTransfer("check", "id-1", one)
	book, hold := &Book{namespace: ns}, ns.attemptTransfer("hold", "id-1", one)
	payment := ns.MoneyTransfer("USD", "alice", "p-1")
	daily := []Charge{{Limit: Limit{Name: "daily"}, Subject: "alice", Amount: 99_999}}
	paid := ledgers.AmountOf(99_999)
	none := func(bool) []Note { return nil }
	rows := []struct { // tidy:table every kind of id
		name string
		got  ledgers.ID
		want string
	}{
		{"account", alice, "c0d27824cb3c830ea1528a78112047f7"},
		{"account of another limit", site, "4a04f716ce3d858b8bcdef9ffb6ee0c7"},
		{"operator", ns.OperatorAccount("api"), "72b599e47a7b80ca997b963a7cf8d5f1"},
		{"overage", ns.OverageAccount("api", "alice"), "4cfc8df1f173872a8f02102fa451b138"},
		{"first quota", ns.QuotaStep(alice, 0), "11ae0fe6b43388718518e9544ad2acb8"},
		{"quota step 7", ns.QuotaStep(alice, 7), "aa04287a9de6834580aa5d0c7326337c"},
		{"grant", ns.GrantTransfer("api", "alice", "g-1"), "e0cfaefc7b3d8c41aae0512a0f7dc9f0"},
		{"check", check, "c6badcd0c0cf86438176ba5106a208bc"},
		{"check of two", ns.attemptTransfer("check", "id-1", inOrder(two)),
			"a3fa4558333883c992a66ef7f6f8790d"},
		{"member", ns.MemberTransfer(check, 1), "ac69139f83118df0b92e32a7c7ecc63a"},
		{"end", ns.EndTransfer(check), "2b06ad90be468ccc8f2f8055e18286bc"},
		{"fingerprint", ledgers.ID(ns.fingerprint("check", one)), "7ef1fc1d5efb81d0a0cb944796697282"},
		{"money account", ns.MoneyAccount("USD", "alice"), "20a292c3c04d817e8352eacbfbcf6cef"},
		{"treasury", ns.TreasuryAccount("USD"), "629cf4c59ae7809e9f861ffc274f9685"},
		{"deposit", ns.DepositTransfer("USD", "alice", "d-1"), "57d83e14b1018b9abde279870d47c33b"},
		{"hold", hold, "b2ad8c27aed88cf48ffe9ca5b44e09d4"},
		{"end of a hold", ns.EndTransfer(hold), "7f8d976475c88baeaf929b51168d32c9"},
		{"renewed hold", ns.replacement(hold), "8d1be3bdb4aa8b83b26d2c7b93c52888"},
		{"booking of the second charge", book.slot(Hold{First: hold}, 1, 1),
			"2a49c851c47f84eab5300a9ec7b26691"},
		{"its other half", book.slot(Hold{First: hold}, 1, 2), "06ac20c42633825dae62a6e33697b7d5"},
		{"hold with notes", ns.attemptTransfer("noted", "id-1", one), "eb708370fad48fe88ab2a6043569f64f"},
		{"usage", ns.attemptTransfer("track", "id-1", one), "254c38ca93028ce1b013fca2ffa9844c"},
		{"name", ns.NameAccount(alice, 0), "58d9785c1c5b8aba96e30e246be4eb8f"},
		{"last part of a long name", ns.NameAccount(alice, 36), "3c3eaee749d58e03a0e649e1d6677f03"},
		{"fingerprint of a hold", ledgers.ID(ns.fingerprint("hold", one, "30")),
			"d23cfab7ffe985959c713ac382b2fa00"},
		{"fingerprint of a settlement",
			ledgers.ID(ns.fingerprint("settle", nil, hold.String(), "7", "0")),
			"e755eadd26018259808cd76eab8a0ae8"},
		{"fingerprint of a release", ledgers.ID(ns.fingerprint("release", nil, hold.String())),
			"b87971497fc8829bae368bb70da43400"},
		{"fingerprint of a renewal", ledgers.ID(ns.fingerprint("renew", nil, hold.String(), "60")),
			"1f12e2cbd68f8a70b433d94cf6dddd2c"},
		{"note beside a hold", ns.NoteTransfer(hold, 1), "e336cd0283ae8f08a3d2b80e5c0aa38c"},
		{"note that stands alone", ns.NoteTransfer(alice, 29342400),
			"21bb92ca0a828d4c8c3fa603a41fd097"},
		{"correction", ns.correction(hold, "c-1"), "0deb47a395158ab6978e6d7ca0f3ca1c"},
		{"fingerprint of a hold with notes", ledgers.ID(book.WithNotes(Attempt{}, "",
			&Annotation{Sent: []string{"fast 12", ""}, Notes: none}).fingerprint),
			"bc38aaadda94845f8df8f7d1dbf2fa7a"},
		{"fingerprint of a settlement with notes",
			ledgers.ID(ns.fingerprint("settle", nil, hold.String(), "model", "", "7")),
			"f974d09082158e91a993fafcf9633fbc"},
		{"fingerprint of a correction", ledgers.ID(ns.fingerprint("correct", nil, "model", "8")),
			"a8ff71156b8483839f0f55637003e3a4"},
		{"payment", payment, "498514708ba185d0af74c27f51886890"},
		{"member of a payment", ns.MemberTransfer(payment, 1), "836a62b8267a850bab51db518891b48f"},
		{"fingerprint of a payment", ledgers.ID(ns.moneyFingerprint(
			"payment", "USD", []string{"alice", "bob"}, paid, daily)),
			"b33af3343b7b83e1a4f82fa5bf05f817"},
		{"fingerprint of a deposit", ledgers.ID(ns.moneyFingerprint(
			"deposit", "USD", []string{"alice"}, paid, nil)), "45ddda12334c8a8093fd0b5a669c857d"},
	}
	for _, row := range rows {
		if row.got.String() != row.want {
			t.Errorf("%s: got %s, want %s", row.name, row.got, row.want)
		}
	}
}

// A limit "a" with subject "b:c" is not a limit "a:b" with subject "c", whatever the separator.
func TestIDsKeepPartsApart(t *testing.T) {
	var ns Namespace
	for _, separator := range []string{":", ".", "_", "-", "/", "|", "\x00", ""} {
		a := ns.UserAccount("a", "b"+separator+"c")
		b := ns.UserAccount("a"+separator+"b", "c")
		if a == b {
			t.Errorf("separator %q: one account for two subjects", separator)
		}
	}
	for _, subject := range []string{"a/b", "a%2Fb", "a%252Fb"} {
		for _, other := range []string{"a/b", "a%2Fb", "a%252Fb"} {
			same := ns.UserAccount("x", subject) == ns.UserAccount("x", other)
			if same != (subject == other) {
				t.Errorf("subjects %q and %q: same account is %v", subject, other, same)
			}
		}
	}
}

func TestGoldenLedgerNumbers(t *testing.T) {
	want := map[string]uint32{
		"api-requests": 1605762998, "egress": 1367612227, "a": 1699463305, "a:b": 868340111,
		"asset:USD": 566289060,
	}
	for name, number := range want {
		if got := LedgerNumber(name); got != number {
			t.Errorf("LedgerNumber(%q): got %d, want %d", name, got, number)
		}
	}
	if got := AssetLedger("USD"); got != want["asset:USD"] {
		t.Errorf("AssetLedger(USD): got %d, want %d", got, want["asset:USD"])
	}
}

func TestNewTransferAscends(t *testing.T) {
	var last ledgers.ID
	for range 10_000 {
		id, err := NewTransfer()
		if err != nil {
			t.Fatal(err)
		}
		if id.Compare(last) <= 0 {
			t.Fatalf("id %s after %s: want a larger one", id, last)
		}
		last = id
	}
}
