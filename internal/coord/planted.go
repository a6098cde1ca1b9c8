package coord

// Fault is a fault that the simulation plants, to see that it finds it.
type Fault string

// The faults that can be planted.
const (
	PermitNotChecked      Fault = "a public transaction goes out without the originator's yes"
	TwoPermits            Fault = "a permit is given while another is open"
	StaleKeyBelieved      Fault = "an answer to an older request is believed"
	OutrankByOwnHeight    Fault = "the rank of another is computed at the own height"
	ForeignYesBelieved    Fault = "a yes is believed from any node"
	OldInstallBelieved    Fault = "what a life has said that its node has lost is believed"
	GenerationNotCompared Fault = "a request of an older generation closes a permit"
	OldBeatBelieved       Fault = "an older word of the holder closes a permit"
	NeverAsks             Fault = "the holder of a permit is never asked"
	FailsWhileOthersGo    Fault = "an intent fails while another dispatch of it may land"
	GoneInputsTaken       Fault = "an input counts that was offered, and that no work makes any more"
	TimeoutIsRevert       Fault = "a public transaction whose outcome is unknown counts as reverted"
	ProducersForgotten    Fault = "a public transaction does not wait for those that make its inputs"
	RestoreNotNoticed     Fault = "a restored store goes on as if it had lost nothing"
	GapForgotten          Fault = "a node that starts again before it is greeted asks about its hellos alone"
	StepsUnstarted        Fault = "a step of a node whose processes are down begins no life"
	RepeatsBelieved       Fault = "an intent that is submitted again after a restore counts as new"
	DependentsNotHeld     Fault = "an intent is delegated before those that it depends on have succeeded"
)

// Plant plants a fault. Only the simulation does: a test of the house sees to it, and no row can hold one.
func Plant(d *Domain, f Fault) { d.fault = f }

func (t *turn) planted(f Fault) bool { return t.d.fault == f }
