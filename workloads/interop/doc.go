// Package interop runs real clients of Kafka against a real pawl: the binary in
// a process of its own, and clients that others wrote, in the versions that
// people have. It has nothing but tests, under the build tag interop: `make
// interop`.
//
// What a client wrote is read by another one, franz-go, record by record; what
// it reads was written by franz-go. A client that is not installed is fetched
// from its registry into a temporary directory. One that cannot be had is a
// failure: what was not run was not shown to work.
//
// The clients that are no dependency of pawl's are programs of their own:
//   - clients: sarama and kafka-go, a module of its own
//   - librdkafka: confluent-kafka-go, a module of its own that needs cgo
//   - testdata/*.py, testdata/*.mjs: Python and Node.js
//   - kcat, which the machine must have
//
// Such a program gets the broker's address and a name that begins its topics'
// names. It prints a line for each thing it shows:
//
//	ok WHAT               something that works
//	wrote TOPIC N CODEC   partition 0 of TOPIC has N records, see record below
//
// and exits with 1 after the first that does not work.
package interop
