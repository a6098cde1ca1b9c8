// Package kube is a module of its own, since the types of Kubernetes are large: deploy/kubernetes is decoded
// strictly into them, and compared with what the program knows.
package kube
