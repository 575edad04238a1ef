//! Parallel log streams, and LSN vectors over them.
