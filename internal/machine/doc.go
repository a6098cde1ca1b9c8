// Package machine holds state machines as data: a Table is a list of rules made of names only, so that it can be
// printed, compared and checked. The package that owns a table binds the names of guards and effects to what they do.
//
// From a table are derived: the diagram (Mermaid), the page beside the code (Markdown), the enums
// (States, Events), and the CHECK of legal edges (CheckSQL). ParseMarkdown reads the diagrams of the
// published designs, so that a test can compare them with our tables edge by edge.
package machine
