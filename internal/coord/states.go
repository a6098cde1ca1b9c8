package coord

// State is where a machine of this package is. The four tables share the names that they have in common.
type State string

// The states, spelled as the published design spells them. Evicted is ours.
const (
	Pending              State = "Pending"
	Delegated            State = "Delegated"
	Assembling           State = "Assembling"
	Signing              State = "Signing"
	EndorsementGathering State = "EndorsementGathering" // of an intent
	Prepared             State = "Prepared"             // of an intent, and of a coordinator
	Dispatched           State = "Dispatched"
	Sequenced            State = "Sequenced"
	Submitted            State = "Submitted"
	Confirmed            State = "Confirmed"
	Reverted             State = "Reverted"
	Parked               State = "Parked"

	Pooled             State = "Pooled"
	PreAssemblyBlocked State = "PreAssembly_Blocked"
	Gathering          State = "Endorsement_Gathering" // of a work
	Blocked            State = "Blocked"
	ConfirmingDispatch State = "Confirming_Dispatch"
	ReadyForDispatch   State = "Ready_For_Dispatch"
	Final              State = "Final"
	Evicted            State = "Evicted"

	Idle      State = "Idle"
	Observing State = "Observing"
	Sending   State = "Sending"
	Elect     State = "Elect"
	Standby   State = "Standby"
	Active    State = "Active"
	Flush     State = "Flush"
	Closing   State = "Closing"
)

// On is an event of one of the four tables.
type On string

// The events of an intent. Ours are Assembled, Fulfilled, Cancelled and DependencyFailed.
const (
	OnCreated                     On = "Created"
	OnDelegated                   On = "Delegated"
	OnAssembleRequestReceived     On = "AssembleRequestReceived"
	OnAssembled                   On = "Assembled" // assembled, not yet signed
	OnAssembleAndSignSuccess      On = "AssembleAndSignSuccess"
	OnAssembleRevert              On = "AssembleRevert"
	OnAssemblePark                On = "AssemblePark"
	OnAssembleError               On = "AssembleError"
	OnConfirmationRequestReceived On = "DispatchConfirmationRequestReceived"
	OnDispatched                  On = "Dispatched"
	OnNonceAssigned               On = "NonceAssigned"
	OnSubmitted                   On = "Submitted" // of an intent, and of a work
	OnConfirmedSuccess            On = "ConfirmedSuccess"
	OnConfirmedReverted           On = "ConfirmedReverted"
	OnFulfilled                   On = "Fulfilled" // the ledger has it
	OnCoordinatorChanged          On = "CoordinatorChanged"
	OnResumed                     On = "Resumed"
	OnCancelled                   On = "Cancelled"
	OnDependencyFailed            On = "DependencyFailed"
)

// The events of a work. Ours are AssembleParkResponse, AssembleError, AssembleRejected, PrepareDone, PrepareError,
// DependencyTerminated, DependencyReset, DispatchUndone, Looked and Dropped.
const (
	OnReceived               On = "Received"
	OnSelected               On = "Selected"
	OnAssembleSuccess        On = "Assemble_Success"
	OnAssembleRevertResponse On = "Assemble_Revert_Response"
	OnAssembleParkResponse   On = "Assemble_Park_Response"
	OnAssembleRejected       On = "AssembleRejected"
	OnEndorsed               On = "Endorsed"
	OnEndorsedRejected       On = "EndorsedRejected"
	OnDependencyReady        On = "DependencyReady"
	OnDependencyAssembled    On = "DependencyAssembled"
	OnDependencyReverted     On = "DependencyReverted"
	OnDependencyTerminated   On = "DependencyTerminated" // an order dependency ended, or was parked
	OnDependencyReset        On = "DependencyReset"      // a producer of inputs went back
	OnPrepareDone            On = "PrepareDone"
	OnPrepareError           On = "PrepareError"
	OnDispatchConfirmed      On = "DispatchConfirmed"
	OnConfirmationRejected   On = "DispatchConfirmationRejected"
	OnCollected              On = "Collected"
	OnNonceAllocated         On = "NonceAllocated"
	OnConfirmed              On = "Confirmed"
	OnDispatchUndone         On = "DispatchUndone" // the core ended it and sent nothing
	OnLooked                 On = "Looked"         // the ledger was asked whether it has it
	OnRequestTimeoutInterval On = "RequestTimeoutInterval"
	OnDropped                On = "Dropped" // the coordinator gives back what is not dispatched
)

// The events of the originator and of the coordinator. Ours are DelegateTimeout, DelegationRejected,
// EndorsementRequested, Flushed and Away.
const (
	OnHeartbeatInterval          On = "HeartbeatInterval" // of a work, too
	OnHeartbeatReceived          On = "HeartbeatReceived"
	OnTransactionCreated         On = "TransactionCreated"
	OnTransactionConfirmed       On = "TransactionConfirmed"
	OnNewBlock                   On = "NewBlock"
	OnBaseLedgerReverted         On = "Base_Ledger_Transaction_Reverted"
	OnDelegateTimeout            On = "DelegateTimeout"
	OnDelegationRejected         On = "DelegationRejected"
	OnTransactionsDelegated      On = "TransactionsDelegated"
	OnTransactionStateTransition On = "TransactionStateTransition"
	OnHandoverRequestReceived    On = "HandoverRequestReceived"
	OnHandoverReceived           On = "HandoverReceived"
	OnEndorsementRequested       On = "EndorsementRequested"
	OnFlushed                    On = "Flushed" // nothing of it is dispatched any more
	OnAway                       On = "Away"    // it has not beaten for so long that others may have taken over
)
