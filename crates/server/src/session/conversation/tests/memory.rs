//! Refusals when there is no memory left, and commands that go on.

use super::*;
use std::cell::Cell;

thread_local! {
    /// The allocated bytes, as the server of the test's thread is told.
    static ALLOCATED: Cell<u64> = const { Cell::new(0) };

    /// The allocated bytes that are removed and not freed yet.
    static REMOVED: Cell<u64> = const { Cell::new(0) };
}

const OOM: &str = "-OOM command not allowed when used memory > 'maxmemory'. ";

/// With a limit of 1,000 bytes.
fn limited() -> (House, Conversation) {
    let mut house = House::new(false);
    house.shared.settings.count_memory(|| ALLOCATED.get());
    house.shared.limits.memory.removed.set(|| REMOVED.get()).unwrap();
    use_memory(&house, 0);
    let mut client = house.client();
    assert_eq!(house.say(&mut client, b"CONFIG SET maxmemory 1000\r\n"), "+OK ");
    (house, client)
}

/// As many bytes are used, the log's buffers not counted.
fn use_memory(house: &House, bytes: u64) {
    let Opened { database, .. } = house.shared.store.opened.cloned();
    let log = database.log().unwrap();
    ALLOCATED.set(bytes + (log.streams() * log.buffer_bytes()) as u64);
    assert_eq!(house.shared.used_memory(), bytes);
}

#[test]
fn at_the_limit_writes_are_served_and_one_byte_beyond_it_refused() {
    let (mut house, mut client) = limited();
    use_memory(&house, 1_000);
    assert_eq!(house.say(&mut client, b"SET a 1\r\nLPUSH l x y\r\n"), "+OK :2 ");
    use_memory(&house, 1_001);
    for refused in [
        "SET a 2",
        "APPEND a 2",
        "INCR a",
        "LPUSH l z",
        "SORT l ALPHA",
        "COPY a b",
        "HSETEX h EX 9 FIELDS 1 a 1",
        // Of commands with subcommands, these use memory.
        "XGROUP CREATE s g $ MKSTREAM",
        "xgroup createconsumer s g c",
        "FUNCTION LOAD x",
        "function restore x",
    ] {
        assert_eq!(house.say(&mut client, format!("{refused}\r\n").as_bytes()), OOM, "{refused}");
    }
    // Commands that read, remove or use no more go on, even next to refused commands.
    let said = house.say(&mut client, b"GET a\r\nSET a 2\r\nGET a\r\nLPOP l\r\nEXPIRE a 100\r\n");
    assert_eq!(said, format!("$1 1 {OOM}$1 1 $1 y :1 "));
    let lines: [(&[u8], &str); 3] = [
        (b"XGROUP DESTROY s g\r\n", "-ERR The XGROUP subcommand requires the key to exist"),
        (b"FUNCTION LIST\r\n", "*0"),
        (b"XINFO STREAM s\r\n", "-ERR no such key"),
    ];
    for (line, said) in lines {
        assert!(house.say(&mut client, line).starts_with(said), "{line:?}");
    }
    // In a transaction as well.
    assert_eq!(house.say(&mut client, b"MULTI\r\nXGROUP CREATE s g $\r\n"), format!("+OK {OOM}"));
    assert!(house.say(&mut client, b"EXEC\r\n").starts_with("-EXECABORT"));
    let said = house.say(&mut client, b"INFO everything\r\n");
    assert!(said.contains(" errorstat_OOM:count=13 "), "{said}");
    let script =
        b"EVAL \"return redis.call('XGROUP', 'CREATE', 's', 'g', '$', 'MKSTREAM')\" 1 s\r\n";
    assert!(house.say(&mut client, script).starts_with("-OOM command not allowed"));
    assert!(said.contains(" used_memory:1001 ") && said.contains(" maxmemory:1000 "), "{said}");
    let of_set = "cmdstat_set:calls=1,";
    let line = said.split(' ').find(|line| line.starts_with(of_set)).expect("SET has run once");
    assert!(line.ends_with("rejected_calls=2,failed_calls=0"), "{line}");
    assert_eq!(house.say(&mut client, b"DEL a\r\n"), ":1 ");
    use_memory(&house, 1_000);
    assert_eq!(house.say(&mut client, b"SET a 3\r\n"), "+OK ");
}

#[test]
fn nothing_is_refused_for_what_is_about_to_be_freed() {
    let (mut house, mut client) = limited();
    use_memory(&house, 1_500);
    REMOVED.set(500);
    assert_eq!(house.say(&mut client, b"SET a 1\r\n"), "+OK ");
    let said = house.say(&mut client, b"INFO memory\r\n");
    assert!(said.contains(" mem_not_counted_for_evict:500 "), "{said}");
    REMOVED.set(499);
    assert_eq!(house.say(&mut client, b"SET a 1\r\n"), OOM);
}

/// The limit is checked between the command's transactions.
#[test]
fn a_database_is_filled_up_to_the_limit() {
    let (mut house, mut client) = limited();
    use_memory(&house, 1_000);
    assert_eq!(house.say(&mut client, b"DEBUG POPULATE 5\r\n"), "+OK ");
    use_memory(&house, 1_001);
    assert_eq!(house.say(&mut client, b"DEBUG POPULATE 6\r\n"), OOM);
    assert_eq!(house.say(&mut client, b"DBSIZE\r\n"), ":5 ");
}

#[test]
fn the_limit_can_be_changed_and_taken_away() {
    let (mut house, mut client) = limited();
    use_memory(&house, 5_000_000);
    assert_eq!(house.say(&mut client, b"SET a 1\r\n"), OOM);
    assert_eq!(house.say(&mut client, b"CONFIG SET maxmemory 5mb\r\nSET a 1\r\n"), "+OK +OK ");
    let said = house.say(&mut client, b"CONFIG GET maxmemory\r\n");
    assert_eq!(said, "*2 $9 maxmemory $7 5242880 ");
    use_memory(&house, u64::MAX >> 1);
    assert_eq!(house.say(&mut client, b"SET a 1\r\n"), OOM);
    assert_eq!(house.say(&mut client, b"CONFIG SET maxmemory 0\r\nSET a 1\r\n"), "+OK +OK ");
    let said = house.say(&mut client, b"CONFIG SET maxmemory 1x\r\n");
    assert!(said.starts_with("-ERR CONFIG SET failed") && said.contains("a size such as"));
    let said = house.say(&mut client, b"CONFIG SET maxmemory-policy allkeys-lru\r\n");
    assert!(said.contains("keys are never evicted"), "{said}");
    let said = house.say(&mut client, b"CONFIG SET maxmemory-policy noeviction\r\n");
    assert_eq!(said, "+OK ");
}

#[test]
fn multi_queues_nothing_and_exec_runs_nothing_that_may_use_memory() {
    let (mut house, mut client) = limited();
    let before = "EXECABORT Transaction discarded because of previous errors.";
    use_memory(&house, 1_001);
    let said = house.say(&mut client, b"MULTI\r\nGET a\r\nEXEC\r\n");
    assert_eq!(said, format!("+OK {OOM}-{before} "));
    assert_eq!(house.say(&mut client, b"MULTI\r\nDISCARD\r\n"), "+OK +OK ");
    // The memory is used up behind MULTI.
    use_memory(&house, 1_000);
    assert_eq!(house.say(&mut client, b"MULTI\r\nSET a 1\r\nDEL b\r\n"), "+OK +QUEUED +QUEUED ");
    use_memory(&house, 1_001);
    let cause = &OOM[1..];
    let said = house.say(&mut client, b"EXEC\r\nEXEC\r\nGET a\r\n");
    let discarded = "-EXECABORT Transaction discarded because of: ";
    assert_eq!(said, format!("{discarded}{cause}-ERR EXEC without MULTI $-1 "));
    // The queued commands use no memory.
    use_memory(&house, 1_000);
    house.say(&mut client, b"SET a 1\r\nMULTI\r\nDEL a\r\nPING\r\n");
    use_memory(&house, 1_001);
    assert_eq!(house.say(&mut client, b"EXEC\r\n"), "*2 :1 +PONG ");
}

#[test]
fn a_command_that_has_waited_is_refused_and_the_next_one_is_served() {
    let (mut house, mut client) = limited();
    let (mut moves, mut pops) = (house.client(), house.client());
    assert_eq!(house.say(&mut moves, b"BLMOVE l m LEFT LEFT 0\r\n"), "");
    assert_eq!(house.say(&mut pops, b"BLPOP l 0\r\n"), "");
    assert_eq!(house.say(&mut client, b"RPUSH l x\r\n"), ":1 ");
    use_memory(&house, 1_001);
    assert_eq!(house.say(&mut moves, b""), OOM);
    assert!(!moves.is_blocked());
    assert_eq!(house.say(&mut pops, b""), "*2 $1 l $1 x ");
    assert_eq!(house.say(&mut client, b"EXISTS l m\r\n"), ":0 ");
    // A new command is refused at once, as any other.
    assert_eq!(
        house.say(&mut moves, b"BLMOVE l m LEFT LEFT 0\r\nPING\r\n"),
        format!("{OOM}+PONG ")
    );
}

#[test]
fn a_client_without_replies_is_refused_as_well() {
    let (mut house, mut client) = limited();
    use_memory(&house, 1_001);
    let said =
        house.say(&mut client, b"CLIENT REPLY OFF\r\nSET a 1\r\nCLIENT REPLY ON\r\nGET a\r\n");
    assert_eq!(said, "+OK $-1 ");
}

#[test]
fn what_may_use_memory_is_told() {
    let mut house = House::new(false);
    let mut client = house.client();
    let said = house.say(&mut client, b"COMMAND INFO set\r\n");
    assert!(said.contains("*2 +write +denyoom "), "{said}");
    assert!(!house.say(&mut client, b"COMMAND INFO del blpop get\r\n").contains("denyoom"));
}

/// Without a counter the pages of the process count.
#[test]
fn pages_in_memory_count_if_nothing_else_is_told() {
    let mut house = House::new(false);
    let mut client = house.client();
    assert_eq!(
        house.say(&mut client, b"CONFIG SET maxmemory 1\r\nSET a 1\r\n"),
        format!("+OK {OOM}")
    );
    assert_eq!(house.say(&mut client, b"CONFIG SET maxmemory 1024gb\r\nSET a 1\r\n"), "+OK +OK ");
}
