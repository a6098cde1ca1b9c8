// Package manifest reads the files of postern apply: documents in YAML or JSON, and each says what one thing
// is to be.
//
//   - document: a kind, a name, perhaps a context, and settings: the body of the PUT of that thing.
//   - reference: {from_file: PATH} or {from_env: NAME} in place of a text in settings. The reader puts what it names
//     there, without a line break at the end. A secret stands in no file: it wants a reference.
//
// A file has any number of documents: those that --- separates in YAML, JSON values one behind the other, and the
// items of a list. It knows where each value stands, so that an error names line and column. It does not know what
// settings mean.
package manifest
