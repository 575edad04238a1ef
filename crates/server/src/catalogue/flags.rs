//! Flags of commands and subcommands.

/// None.
pub const NO_FLAGS: u32 = 0;
/// The command writes.
pub const WRITE: u32 = 1;
/// It reads keys.
pub const READ: u32 = 1 << 1;
/// It takes a time that does not depend on the data.
pub const FAST: u32 = 1 << 2;
/// It is for operators.
pub const ADMIN: u32 = 1 << 3;
/// It is a transaction of its own, outside of EXEC, and no other thread runs it.
pub const ALONE: u32 = 1 << 4;
/// It may wait for an element; outside of EXEC it is a transaction of its own.
pub const BLOCKS: u32 = 1 << 5;
/// It may use more memory, so it is refused when there is none left.
pub const DENY_OOM: u32 = 1 << 6;
/// The command writes, and may use more memory.
pub const GROW: u32 = WRITE | DENY_OOM;
/// It is about publishing and subscribing.
pub const PUBSUB: u32 = 1 << 7;
/// No script may run it.
pub const NOSCRIPT: u32 = 1 << 8;
/// Clients that have not logged in may run it.
pub const NO_AUTH: u32 = 1 << 9;
/// It runs while a script runs.
pub const ALLOW_BUSY: u32 = 1 << 10;
/// MULTI does not queue it in Redis.
pub const NO_MULTI: u32 = 1 << 11;
/// Redis refuses it while a database is loaded beside an older one.
pub const NO_ASYNC_LOADING: u32 = 1 << 12;
/// It is not in the slow log.
pub const SKIP_SLOWLOG: u32 = 1 << 13;
/// A node of a cluster runs it on keys that it does not own yet.
pub const ASKING: u32 = 1 << 14;
/// A subcommand: Redis takes it with any number of arguments, and it looks at them itself.
pub const ANY_ARITY: u32 = 1 << 15;
/// It runs commands of a script: clients that monitor are told of those, and keys may be missing.
pub const RUNS_SCRIPTS: u32 = 1 << 16;
/// It may write, as its arguments say.
pub const MAY_WRITE: u32 = 1 << 17;
