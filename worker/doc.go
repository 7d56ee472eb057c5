// Package worker trains one replica of a model against parameter servers.
//
// A [Session] is the replica's view of every shard: Pull brings the weights,
// Push sends the gradient. A [Partitioner] and a [Placement] say which part of
// which variable lives where; they are functions of their arguments alone,
// because every worker computes them for itself. [Train] is the loop.
//
// There is no Worker type: a worker is Train with a session and a model. An
// evaluator is a session that never pushes.
package worker
