package main

import (
	"context"
	"fmt"
)

func runTwins(ctx context.Context, bin, names, table string) error { return fmt.Errorf("none") }
