//! Rules broken on purpose, one at a time, to see that the tests which guard them notice. Nothing is
//! broken unless the crate is built with the feature `mutations` and a test asks for it.

/// Files are given up before the manifest says so.
pub const TRUNCATE_BEFORE_MANIFEST: u64 = 1;
/// A checkpoint counts although the log is not yet durable up to its cut.
pub const VALID_BEFORE_FRONTIER: u64 = 2;
/// Rows that are overwritten while a checkpoint is being written are not saved for it.
pub const NO_COPY_ON_WRITE: u64 = 4;
/// A checkpoint does not wait for transactions of its epochs that are still installing.
pub const NO_WAIT_FOR_COMMITS: u64 = 8;
/// A record that is in the checkpoint is replayed all the same.
pub const REPLAY_BELOW_CUT: u64 = 16;

/// What is broken: written by tests, read where the rules are kept. Relaxed: it is set before anything runs.
#[cfg(feature = "mutations")]
static ACTIVE: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

/// Breaks these rules, and only these, from now on.
#[cfg(feature = "mutations")]
pub fn set(broken: u64) {
    ACTIVE.store(broken, std::sync::atomic::Ordering::Relaxed);
}

/// Whether a rule is to be broken.
#[inline(always)]
pub fn active(rule: u64) -> bool {
    #[cfg(feature = "mutations")]
    return ACTIVE.load(std::sync::atomic::Ordering::Relaxed) & rule != 0;
    #[cfg(not(feature = "mutations"))]
    {
        let _ = rule;
        false
    }
}
