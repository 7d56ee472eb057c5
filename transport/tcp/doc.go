// Package tcp is the transport in plain frames, over TCP or a Unix socket: the
// least that the calls of [transport.Service] can cost on a stream of bytes,
// and so the measure of what gRPC adds.
//
// # Connections
//
// Both ends first say "pushpull tcp 1\r\n", the 1 being the version, and hang up
// on whoever says anything else. Then the end that dialed sends a request and
// the other an answer, in turns: a connection carries one call at a time, and a
// [transport.Conn] opens as many as it has calls under way. Whoever gives up a
// call closes its connection, and the far end stops working on it.
//
// # Frames
//
// All numbers are little-endian. A frame is 16 bytes, a header and data:
//
//	0     'p'
//	1     kind: 1 join, 2 init, 3 pull, 4 push, 5 finish, 6 leave, 7 describe;
//	      8 answer, 9 failure, 10 the call goes on
//	2-3   zero
//	4-7   bytes of the header
//	8-15  bytes of data
//
// Headers are made of varints and counted strings. A request's begins with the
// nanoseconds that are left for the call (0: any) and the milliseconds of
// silence after which the caller gives up; then come the arguments, parts less
// their data. An answer's holds the results, a failure's one byte for the
// sentinel error and the text. If there is data, zeros fill the header up to a
// multiple of 64 bytes from the frame's beginning. The data of all parts follows,
// in their order and encodings, without gaps: where memory is little-endian it is
// sent from where it lies and received where it belongs. A server receives into
// memory that the connection keeps for its next call, for a minute.
//
// While a call takes long the server says now and then that it goes on, so that
// the caller can tell patience from a peer that hangs.
package tcp
