// Package twin plants known faults, so that what looks for faults can be seen to find them.
//
// A program that is built with the tag twin has one fault, which the variable POSTERN_TWIN names, and is otherwise the
// program that it would be. Without the tag Planted is constant false, and nothing of a fault is in the binary: a test
// searches it. test/chaos has a scenario for each fault, and make chaos-twins runs them all.
package twin
