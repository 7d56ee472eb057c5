// Package ps is the parameter server: it owns a shard of a model's weights and
// turns the gradients that workers push into updates.
//
// [Shard] decides: it is a plain state machine without lock, goroutine, clock
// or network. [Server] is the [transport.Service] around it: it makes a shard
// safe to share, makes Pull wait, counts, and saves checkpoints. A [Policy]
// says which gradients make an update, an [Optimizer] what an update is and a
// [Schedule] at which rate. A Server may be used by any number of goroutines;
// a Shard by one, except that calls which only read may run side by side.
//
// # Invariants
//
// Steps and replicas:
//
//  1. A shard counts its own updates. Its step is -1 until the first Init,
//     which any replica may send; later ones change nothing.
//  2. The tasks 0 to Replicas-1 are expected. A replica belongs to one process
//     at a time: a Join with a new life replaces the older one, whose calls
//     then fail. The gradient that the older one gave to the current step stays.
//  3. All replicas agree with the shard on every setting, and with the first
//     replica that joined on the plan.
//
// Pushes:
//
//  4. A push with the sequence number of its life's last push is answered with
//     the same verdict, one with a lower number is a duplicate. Neither changes
//     anything but the ledger.
//  5. A push that fails leaves no trace.
//  6. A replica has one turn in a step: one gradient of it at most is part of an
//     update. A stale, surplus or non-finite gradient does not use up the turn.
//  7. Every push that gets its first verdict adds to the examples seen, whatever
//     the verdict.
//  8. The verdicts of a replica add up to its pushes that did not fail.
//
// Updates:
//
//  9. An update is made when Aggregate gradients are gathered, when no replica
//     remains that could add one, or when the plan's examples have been seen. A
//     replica could add one if it has not finished and had no turn; one
//     that has not joined yet is awaited.
//  10. An update is the mean of the gathered gradients: their sum divided by
//     their number. A part or row that a gradient does not mention counts as
//     zero. Rows have the same effect as the dense gradient that is zero
//     elsewhere, bit for bit.
//  11. The learning rate of an update is that of the epoch in which its gathering
//     began: examples seen when the update before was made, divided by those
//     in an epoch.
//  12. A shard holds its weights, their slots and at most one sum of gradients.
//
// The end:
//
//  13. Training is over when the planned steps are made, when the planned
//     examples are seen, or when every expected replica has finished. A shard whose
//     training is over has nothing gathered and keeps its weights for good; it
//     drops what comes and lets every Pull through.
//
// Waiting:
//
//  14. One Pull never mixes the weights of two steps.
//  15. Only Pull waits, at most MaxWait, and then says for whom.
//
// Checkpoints:
//
//  16. A checkpoint is the shard as of its last update: gradients gathered since
//     are not part of it, and the replicas that gave them stand in it as they
//     did before, so that they compute them again.
//  17. Stop, restore and go on leaves the same bits as never having stopped.
package ps
