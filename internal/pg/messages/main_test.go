package messages_test

import (
	"testing"

	"github.com/postern-dev/postern/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }
