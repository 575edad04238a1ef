//! Flags of commands and subcommands.

/// None.
pub const NO_FLAGS: u32 = 0;
/// The command writes.
pub const WRITE: u32 = 1;
/// The command reads keys.
pub const READ: u32 = 1 << 1;
/// The time of the command does not depend on the data.
pub const FAST: u32 = 1 << 2;
/// The command is for operators.
pub const ADMIN: u32 = 1 << 3;
/// The command is a transaction by itself, outside of EXEC, and no other thread runs the command.
pub const ALONE: u32 = 1 << 4;
/// The command may wait for an element; outside of EXEC the command is a transaction by itself.
pub const BLOCKS: u32 = 1 << 5;
/// The command may use more memory, so the command is refused when no memory is left.
pub const DENY_OOM: u32 = 1 << 6;
/// The command writes, and may use more memory.
pub const GROW: u32 = WRITE | DENY_OOM;
/// The command is about publishing and subscribing.
pub const PUBSUB: u32 = 1 << 7;
/// No script may run the command.
pub const NOSCRIPT: u32 = 1 << 8;
/// Clients without a login may run the command.
pub const NO_AUTH: u32 = 1 << 9;
/// The command runs while a script runs.
pub const ALLOW_BUSY: u32 = 1 << 10;
/// MULTI does not queue the command in Redis.
pub const NO_MULTI: u32 = 1 << 11;
/// Redis refuses the command while a database is loaded beside an older database.
pub const NO_ASYNC_LOADING: u32 = 1 << 12;
/// The command is not in the slow log.
pub const SKIP_SLOWLOG: u32 = 1 << 13;
/// A node of a cluster runs the command on keys not yet owned by the node.
pub const ASKING: u32 = 1 << 14;
/// A subcommand: Redis takes any number of arguments, and the subcommand checks the number itself.
pub const ANY_ARITY: u32 = 1 << 15;
/// The command runs commands of a script: clients that monitor see the commands, and keys may be
/// missing.
pub const RUNS_SCRIPTS: u32 = 1 << 16;
/// The command may write, depending on its arguments.
pub const MAY_WRITE: u32 = 1 << 17;
