package ledgers

import "fmt"

// AccountStatus is the answer to one account of CreateAccounts. The numbers and names are
// TigerBeetle's (CreateAccountStatus), listed in its order of precedence: where several apply, the
// first is answered.
type AccountStatus uint32

// TransferStatus is the answer to one transfer of CreateTransfers. The numbers and names are
// TigerBeetle's (CreateTransferStatus), listed in its order of precedence.
type TransferStatus uint32

// AccountResult is a status with the time that belongs to it in nanoseconds since 1970: of the
// creation for `created`, of the first creation for `exists`, and the ledger's present otherwise.
type AccountResult struct {
	Timestamp uint64
	Status    AccountStatus
}

// TransferResult is a status with the time that belongs to it in nanoseconds since 1970: of the
// creation for `created`, of the first creation for `exists`, and the ledger's present otherwise.
type TransferResult struct {
	Timestamp uint64
	Status    TransferStatus
}

// The statuses of accounts. The name that String returns is the one that TigerBeetle documents.
const (
	AccountCreated                              AccountStatus = 0xFFFFFFFF
	AccountLinkedEventFailed                    AccountStatus = 1
	AccountLinkedEventChainOpen                 AccountStatus = 2
	AccountImportedEventExpected                AccountStatus = 22
	AccountImportedEventNotExpected             AccountStatus = 23
	AccountTimestampMustBeZero                  AccountStatus = 3
	AccountImportedEventTimestampOutOfRange     AccountStatus = 24
	AccountImportedEventTimestampMustNotAdvance AccountStatus = 25
	AccountReservedField                        AccountStatus = 4
	AccountReservedFlag                         AccountStatus = 5
	AccountIDMustNotBeZero                      AccountStatus = 6
	AccountIDMustNotBeIntMax                    AccountStatus = 7
	AccountExistsWithDifferentFlags             AccountStatus = 15
	AccountExistsWithDifferentUserData128       AccountStatus = 16
	AccountExistsWithDifferentUserData64        AccountStatus = 17
	AccountExistsWithDifferentUserData32        AccountStatus = 18
	AccountExistsWithDifferentLedger            AccountStatus = 19
	AccountExistsWithDifferentCode              AccountStatus = 20
	AccountExists                               AccountStatus = 21
	AccountFlagsAreMutuallyExclusive            AccountStatus = 8
	AccountDebitsPendingMustBeZero              AccountStatus = 9
	AccountDebitsPostedMustBeZero               AccountStatus = 10
	AccountCreditsPendingMustBeZero             AccountStatus = 11
	AccountCreditsPostedMustBeZero              AccountStatus = 12
	AccountLedgerMustNotBeZero                  AccountStatus = 13
	AccountCodeMustNotBeZero                    AccountStatus = 14
	AccountImportedEventTimestampMustNotRegress AccountStatus = 26
)

// The statuses of transfers. The name that String returns is the one that TigerBeetle documents.
const (
	TransferCreated                                         TransferStatus = 0xFFFFFFFF
	TransferLinkedEventFailed                               TransferStatus = 1
	TransferLinkedEventChainOpen                            TransferStatus = 2
	TransferImportedEventExpected                           TransferStatus = 56
	TransferImportedEventNotExpected                        TransferStatus = 57
	TransferTimestampMustBeZero                             TransferStatus = 3
	TransferImportedEventTimestampOutOfRange                TransferStatus = 58
	TransferImportedEventTimestampMustNotAdvance            TransferStatus = 59
	TransferReservedFlag                                    TransferStatus = 4
	TransferIDMustNotBeZero                                 TransferStatus = 5
	TransferIDMustNotBeIntMax                               TransferStatus = 6
	TransferExistsWithDifferentFlags                        TransferStatus = 36
	TransferExistsWithDifferentPendingID                    TransferStatus = 40
	TransferExistsWithDifferentTimeout                      TransferStatus = 44
	TransferExistsWithDifferentDebitAccountID               TransferStatus = 37
	TransferExistsWithDifferentCreditAccountID              TransferStatus = 38
	TransferExistsWithDifferentAmount                       TransferStatus = 39
	TransferExistsWithDifferentUserData128                  TransferStatus = 41
	TransferExistsWithDifferentUserData64                   TransferStatus = 42
	TransferExistsWithDifferentUserData32                   TransferStatus = 43
	TransferExistsWithDifferentLedger                       TransferStatus = 67
	TransferExistsWithDifferentCode                         TransferStatus = 45
	TransferExists                                          TransferStatus = 46
	TransferIDAlreadyFailed                                 TransferStatus = 68
	TransferFlagsAreMutuallyExclusive                       TransferStatus = 7
	TransferDebitAccountIDMustNotBeZero                     TransferStatus = 8
	TransferDebitAccountIDMustNotBeIntMax                   TransferStatus = 9
	TransferCreditAccountIDMustNotBeZero                    TransferStatus = 10
	TransferCreditAccountIDMustNotBeIntMax                  TransferStatus = 11
	TransferAccountsMustBeDifferent                         TransferStatus = 12
	TransferPendingIDMustBeZero                             TransferStatus = 13
	TransferPendingIDMustNotBeZero                          TransferStatus = 14
	TransferPendingIDMustNotBeIntMax                        TransferStatus = 15
	TransferPendingIDMustBeDifferent                        TransferStatus = 16
	TransferTimeoutReservedForPendingTransfer               TransferStatus = 17
	TransferClosingTransferMustBePending                    TransferStatus = 64
	TransferLedgerMustNotBeZero                             TransferStatus = 19
	TransferCodeMustNotBeZero                               TransferStatus = 20
	TransferDebitAccountNotFound                            TransferStatus = 21
	TransferCreditAccountNotFound                           TransferStatus = 22
	TransferAccountsMustHaveTheSameLedger                   TransferStatus = 23
	TransferTransferMustHaveTheSameLedgerAsAccounts         TransferStatus = 24
	TransferPendingTransferNotFound                         TransferStatus = 25
	TransferPendingTransferNotPending                       TransferStatus = 26
	TransferPendingTransferHasDifferentDebitAccountID       TransferStatus = 27
	TransferPendingTransferHasDifferentCreditAccountID      TransferStatus = 28
	TransferPendingTransferHasDifferentLedger               TransferStatus = 29
	TransferPendingTransferHasDifferentCode                 TransferStatus = 30
	TransferExceedsPendingTransferAmount                    TransferStatus = 31
	TransferPendingTransferHasDifferentAmount               TransferStatus = 32
	TransferPendingTransferAlreadyPosted                    TransferStatus = 33
	TransferPendingTransferAlreadyVoided                    TransferStatus = 34
	TransferPendingTransferExpired                          TransferStatus = 35
	TransferImportedEventTimestampMustNotRegress            TransferStatus = 60
	TransferImportedEventTimestampMustPostdateDebitAccount  TransferStatus = 61
	TransferImportedEventTimestampMustPostdateCreditAccount TransferStatus = 62
	TransferImportedEventTimeoutMustBeZero                  TransferStatus = 63
	TransferDebitAccountAlreadyClosed                       TransferStatus = 65
	TransferCreditAccountAlreadyClosed                      TransferStatus = 66
	TransferOverflowsDebitsPending                          TransferStatus = 47
	TransferOverflowsCreditsPending                         TransferStatus = 48
	TransferOverflowsDebitsPosted                           TransferStatus = 49
	TransferOverflowsCreditsPosted                          TransferStatus = 50
	TransferOverflowsDebits                                 TransferStatus = 51
	TransferOverflowsCredits                                TransferStatus = 52
	TransferOverflowsTimeout                                TransferStatus = 53
	TransferExceedsCredits                                  TransferStatus = 54
	TransferExceedsDebits                                   TransferStatus = 55
)

var accountStatusNames = map[AccountStatus]string{
	AccountCreated:                              "created",
	AccountLinkedEventFailed:                    "linked_event_failed",
	AccountLinkedEventChainOpen:                 "linked_event_chain_open",
	AccountImportedEventExpected:                "imported_event_expected",
	AccountImportedEventNotExpected:             "imported_event_not_expected",
	AccountTimestampMustBeZero:                  "timestamp_must_be_zero",
	AccountImportedEventTimestampOutOfRange:     "imported_event_timestamp_out_of_range",
	AccountImportedEventTimestampMustNotAdvance: "imported_event_timestamp_must_not_advance",
	AccountReservedField:                        "reserved_field",
	AccountReservedFlag:                         "reserved_flag",
	AccountIDMustNotBeZero:                      "id_must_not_be_zero",
	AccountIDMustNotBeIntMax:                    "id_must_not_be_int_max",
	AccountExistsWithDifferentFlags:             "exists_with_different_flags",
	AccountExistsWithDifferentUserData128:       "exists_with_different_user_data_128",
	AccountExistsWithDifferentUserData64:        "exists_with_different_user_data_64",
	AccountExistsWithDifferentUserData32:        "exists_with_different_user_data_32",
	AccountExistsWithDifferentLedger:            "exists_with_different_ledger",
	AccountExistsWithDifferentCode:              "exists_with_different_code",
	AccountExists:                               "exists",
	AccountFlagsAreMutuallyExclusive:            "flags_are_mutually_exclusive",
	AccountDebitsPendingMustBeZero:              "debits_pending_must_be_zero",
	AccountDebitsPostedMustBeZero:               "debits_posted_must_be_zero",
	AccountCreditsPendingMustBeZero:             "credits_pending_must_be_zero",
	AccountCreditsPostedMustBeZero:              "credits_posted_must_be_zero",
	AccountLedgerMustNotBeZero:                  "ledger_must_not_be_zero",
	AccountCodeMustNotBeZero:                    "code_must_not_be_zero",
	AccountImportedEventTimestampMustNotRegress: "imported_event_timestamp_must_not_regress",
}

var transferStatusNames = map[TransferStatus]string{
	TransferCreated:                                         "created",
	TransferLinkedEventFailed:                               "linked_event_failed",
	TransferLinkedEventChainOpen:                            "linked_event_chain_open",
	TransferImportedEventExpected:                           "imported_event_expected",
	TransferImportedEventNotExpected:                        "imported_event_not_expected",
	TransferTimestampMustBeZero:                             "timestamp_must_be_zero",
	TransferImportedEventTimestampOutOfRange:                "imported_event_timestamp_out_of_range",
	TransferImportedEventTimestampMustNotAdvance:            "imported_event_timestamp_must_not_advance",
	TransferReservedFlag:                                    "reserved_flag",
	TransferIDMustNotBeZero:                                 "id_must_not_be_zero",
	TransferIDMustNotBeIntMax:                               "id_must_not_be_int_max",
	TransferExistsWithDifferentFlags:                        "exists_with_different_flags",
	TransferExistsWithDifferentPendingID:                    "exists_with_different_pending_id",
	TransferExistsWithDifferentTimeout:                      "exists_with_different_timeout",
	TransferExistsWithDifferentDebitAccountID:               "exists_with_different_debit_account_id",
	TransferExistsWithDifferentCreditAccountID:              "exists_with_different_credit_account_id",
	TransferExistsWithDifferentAmount:                       "exists_with_different_amount",
	TransferExistsWithDifferentUserData128:                  "exists_with_different_user_data_128",
	TransferExistsWithDifferentUserData64:                   "exists_with_different_user_data_64",
	TransferExistsWithDifferentUserData32:                   "exists_with_different_user_data_32",
	TransferExistsWithDifferentLedger:                       "exists_with_different_ledger",
	TransferExistsWithDifferentCode:                         "exists_with_different_code",
	TransferExists:                                          "exists",
	TransferIDAlreadyFailed:                                 "id_already_failed",
	TransferFlagsAreMutuallyExclusive:                       "flags_are_mutually_exclusive",
	TransferDebitAccountIDMustNotBeZero:                     "debit_account_id_must_not_be_zero",
	TransferDebitAccountIDMustNotBeIntMax:                   "debit_account_id_must_not_be_int_max",
	TransferCreditAccountIDMustNotBeZero:                    "credit_account_id_must_not_be_zero",
	TransferCreditAccountIDMustNotBeIntMax:                  "credit_account_id_must_not_be_int_max",
	TransferAccountsMustBeDifferent:                         "accounts_must_be_different",
	TransferPendingIDMustBeZero:                             "pending_id_must_be_zero",
	TransferPendingIDMustNotBeZero:                          "pending_id_must_not_be_zero",
	TransferPendingIDMustNotBeIntMax:                        "pending_id_must_not_be_int_max",
	TransferPendingIDMustBeDifferent:                        "pending_id_must_be_different",
	TransferTimeoutReservedForPendingTransfer:               "timeout_reserved_for_pending_transfer",
	TransferClosingTransferMustBePending:                    "closing_transfer_must_be_pending",
	TransferLedgerMustNotBeZero:                             "ledger_must_not_be_zero",
	TransferCodeMustNotBeZero:                               "code_must_not_be_zero",
	TransferDebitAccountNotFound:                            "debit_account_not_found",
	TransferCreditAccountNotFound:                           "credit_account_not_found",
	TransferAccountsMustHaveTheSameLedger:                   "accounts_must_have_the_same_ledger",
	TransferTransferMustHaveTheSameLedgerAsAccounts:         "transfer_must_have_the_same_ledger_as_accounts",
	TransferPendingTransferNotFound:                         "pending_transfer_not_found",
	TransferPendingTransferNotPending:                       "pending_transfer_not_pending",
	TransferPendingTransferHasDifferentDebitAccountID:       "pending_transfer_has_different_debit_account_id",
	TransferPendingTransferHasDifferentCreditAccountID:      "pending_transfer_has_different_credit_account_id",
	TransferPendingTransferHasDifferentLedger:               "pending_transfer_has_different_ledger",
	TransferPendingTransferHasDifferentCode:                 "pending_transfer_has_different_code",
	TransferExceedsPendingTransferAmount:                    "exceeds_pending_transfer_amount",
	TransferPendingTransferHasDifferentAmount:               "pending_transfer_has_different_amount",
	TransferPendingTransferAlreadyPosted:                    "pending_transfer_already_posted",
	TransferPendingTransferAlreadyVoided:                    "pending_transfer_already_voided",
	TransferPendingTransferExpired:                          "pending_transfer_expired",
	TransferImportedEventTimestampMustNotRegress:            "imported_event_timestamp_must_not_regress",
	TransferImportedEventTimestampMustPostdateDebitAccount:  "imported_event_timestamp_must_postdate_debit_account",
	TransferImportedEventTimestampMustPostdateCreditAccount: "imported_event_timestamp_must_postdate_credit_account",
	TransferImportedEventTimeoutMustBeZero:                  "imported_event_timeout_must_be_zero",
	TransferDebitAccountAlreadyClosed:                       "debit_account_already_closed",
	TransferCreditAccountAlreadyClosed:                      "credit_account_already_closed",
	TransferOverflowsDebitsPending:                          "overflows_debits_pending",
	TransferOverflowsCreditsPending:                         "overflows_credits_pending",
	TransferOverflowsDebitsPosted:                           "overflows_debits_posted",
	TransferOverflowsCreditsPosted:                          "overflows_credits_posted",
	TransferOverflowsDebits:                                 "overflows_debits",
	TransferOverflowsCredits:                                "overflows_credits",
	TransferOverflowsTimeout:                                "overflows_timeout",
	TransferExceedsCredits:                                  "exceeds_credits",
	TransferExceedsDebits:                                   "exceeds_debits",
}

// String returns TigerBeetle's name of the status, such as "exists_with_different_flags".
func (s AccountStatus) String() string {
	name, ok := accountStatusNames[s]
	if !ok {
		return fmt.Sprintf("unknown account status %d", uint32(s))
	}
	return name
}

// Known reports whether the status is one that this package names.
func (s AccountStatus) Known() bool { return accountStatusNames[s] != "" }

// Exists reports whether the account was there before, the same or different.
func (s AccountStatus) Exists() bool {
	return s >= AccountExistsWithDifferentFlags && s <= AccountExists
}

// String returns TigerBeetle's name of the status, such as "exceeds_credits".
func (s TransferStatus) String() string {
	name, ok := transferStatusNames[s]
	if !ok {
		return fmt.Sprintf("unknown transfer status %d", uint32(s))
	}
	return name
}

// Known reports whether the status is one that this package names.
func (s TransferStatus) Known() bool { return transferStatusNames[s] != "" }

// Exists reports whether the transfer was there before, the same or different.
func (s TransferStatus) Exists() bool {
	return s >= TransferExistsWithDifferentFlags && s <= TransferExists ||
		s == TransferExistsWithDifferentLedger
}

// Transient reports whether the status depends on the state of the ledger. A refusal by a transient
// status burns the transfer's id: sent again, with whatever content, it is answered
// id_already_failed.
func (s TransferStatus) Transient() bool {
	switch s {
	case TransferDebitAccountNotFound, TransferCreditAccountNotFound,
		TransferPendingTransferNotFound,
		TransferExceedsCredits, TransferExceedsDebits,
		TransferDebitAccountAlreadyClosed, TransferCreditAccountAlreadyClosed:
		return true
	default:
		return false
	}
}
