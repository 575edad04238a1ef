//! Concurrency controls.

pub(crate) mod partitioned;
pub(crate) mod tictoc;
pub(crate) mod timestamp_order;
mod timestamps;
pub(crate) mod wait_die;
