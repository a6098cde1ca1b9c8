package domains

import (
	"time"

	"github.com/postern-dev/postern/internal/coord"
	"github.com/postern-dev/postern/internal/outbox"
)

// Settings are what people write of a domain (S3.5). A zero duration or number is one that was not written: the
// default.
type Settings struct {
	Self   string   `json:"self"`
	Nodes  []string `json:"nodes"`
	Mode   string   `json:"mode"`
	Static string   `json:"static,omitempty"`
	Types  []string `json:"types"`
	Once   string   `json:"once"`
	Rotate string   `json:"rotation"`
	// Finality is how many confirmations a block has that no reorg takes out; 0: it is not said.
	Finality int `json:"finality,omitempty"`

	ServiceURL     string          `json:"service_url"`
	ServiceCalls   []string        `json:"service_calls"`
	ServiceTimeout outbox.Duration `json:"service_timeout"`
	Sign           string          `json:"sign,omitempty"`

	Heartbeat       outbox.Duration `json:"heartbeat_interval"`
	RequestTimeout  outbox.Duration `json:"request_timeout"`
	StateTimeout    outbox.Duration `json:"state_timeout"`
	DelegateTimeout outbox.Duration `json:"delegate_timeout"`
	FlushGrace      outbox.Duration `json:"flush_grace"`
	InactiveGrace   int             `json:"inactive_grace"`
	ClosingGrace    int             `json:"closing_grace"`
	FinalGrace      int             `json:"final_grace"`
	MinTenure       int             `json:"min_tenure"`
	HeightTolerance int64           `json:"block_height_tolerance"`
	BlockRange      int64           `json:"block_range"`
	MaxInflight     int             `json:"max_inflight"`
	MaxAhead        int             `json:"max_dispatch_ahead"`
	AssembleErrors  int             `json:"assemble_error_threshold"`
	Rejections      int             `json:"endorse_reject_threshold"`
	Reverts         int             `json:"base_ledger_revert_threshold"`

	Clamped []string `json:"clamped,omitempty"` // the settings that were out of their bounds
}

// Optional calls of a service.
const (
	CallLook    = "look"
	CallSettled = "settled"
	CallHeight  = "height"
)

// OptionalCalls lists them.
var OptionalCalls = []string{CallLook, CallSettled, CallHeight}

// Default returns the settings of a domain whose owner says nothing else.
func Default() Settings {
	d := coord.Defaults()
	return Settings{
		Self:            "self",
		Mode:            string(coord.Sender),
		Once:            string(d.Once),
		Rotate:          "range",
		ServiceCalls:    []string{},
		ServiceTimeout:  outbox.Duration(10 * time.Second),
		Heartbeat:       outbox.Duration(d.HeartbeatInterval),
		RequestTimeout:  outbox.Duration(d.RequestTimeout),
		StateTimeout:    outbox.Duration(d.StateTimeout),
		DelegateTimeout: outbox.Duration(d.DelegateTimeout),
		FlushGrace:      outbox.Duration(d.FlushGrace),
		InactiveGrace:   d.InactiveGrace,
		ClosingGrace:    d.ClosingGrace,
		FinalGrace:      d.FinalGrace,
		MinTenure:       d.MinTenure,
		HeightTolerance: d.BlockHeightTolerance,
		BlockRange:      d.BlockRange,
		MaxInflight:     d.MaxInflight,
		MaxAhead:        d.MaxDispatchAhead,
		AssembleErrors:  d.AssembleErrorThreshold,
		Rejections:      d.EndorseRejectThreshold,
		Reverts:         d.BaseLedgerRevertThreshold,
	}
}

// asks says whether the service answers an optional call.
func (s *Settings) asks(call string) bool {
	for _, c := range s.ServiceCalls {
		if c == call {
			return true
		}
	}
	return false
}

// coord is what the machines are given.
func (s *Settings) coord() coord.Settings {
	c := coord.Defaults(s.Nodes...)
	c.Mode, c.Static, c.Once = coord.Mode(s.Mode), s.Static, coord.Once(s.Once)
	c.KeepsActive, c.Look = s.Rotate == "failure", s.asks(CallLook)
	c.HeartbeatInterval, c.RequestTimeout = time.Duration(s.Heartbeat), time.Duration(s.RequestTimeout)
	c.StateTimeout, c.DelegateTimeout = time.Duration(s.StateTimeout), time.Duration(s.DelegateTimeout)
	c.FlushGrace = time.Duration(s.FlushGrace)
	c.InactiveGrace, c.ClosingGrace = s.InactiveGrace, s.ClosingGrace
	c.FinalGrace, c.MinTenure = s.FinalGrace, s.MinTenure
	c.BlockHeightTolerance, c.BlockRange = s.HeightTolerance, s.BlockRange
	c.MaxInflight, c.MaxDispatchAhead = s.MaxInflight, s.MaxAhead
	c.AssembleErrorThreshold, c.EndorseRejectThreshold = s.AssembleErrors, s.Rejections
	c.BaseLedgerRevertThreshold = s.Reverts
	return c
}

// Clamp raises what is below its minimum, and notes the names of those.
func (s *Settings) Clamp() {
	c, low := s.coord().Clamped()
	s.Clamped = low
	s.Heartbeat, s.RequestTimeout = outbox.Duration(c.HeartbeatInterval), outbox.Duration(c.RequestTimeout)
	s.StateTimeout, s.DelegateTimeout = outbox.Duration(c.StateTimeout), outbox.Duration(c.DelegateTimeout)
	s.FlushGrace = outbox.Duration(c.FlushGrace)
	s.InactiveGrace, s.ClosingGrace = c.InactiveGrace, c.ClosingGrace
	s.FinalGrace, s.MinTenure = c.FinalGrace, c.MinTenure
	s.HeightTolerance, s.BlockRange = c.BlockHeightTolerance, c.BlockRange
	s.MaxInflight, s.MaxAhead = c.MaxInflight, c.MaxDispatchAhead
	s.AssembleErrors, s.Rejections, s.Reverts = c.AssembleErrorThreshold, c.EndorseRejectThreshold,
		c.BaseLedgerRevertThreshold
}
