//! Statistics of commands for operators: their numbers and times.

use super::*;

/// A field of a command in INFO commandstats.
fn field(house: &mut House, command: &str, name: &str) -> Option<f64> {
    let mut reader = house.client();
    let info = house.say(&mut reader, b"INFO commandstats\r\n");
    let mut lines = info.split(' ');
    let line = lines.find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:")))?;
    let value = line.split(',').find_map(|pair| pair.strip_prefix(&format!("{name}=")))?;
    value.parse().ok()
}

#[test]
fn commands_are_counted_and_timed_by_their_own_names() {
    let mut house = House::new(false);
    let mut client = house.client();
    house.say(&mut client, b"DEBUG SLEEP 0.02\r\n");
    let usec = field(&mut house, "debug", "usec").unwrap();
    assert!((20_000.0..5_000_000.0).contains(&usec), "{usec}");
    assert_eq!(field(&mut house, "debug", "usec_per_call").map(f64::floor), Some(usec));
    house.say(&mut client, b"SET a b\r\nINCR a\r\nSET a\r\nGET a\r\nCLIENT ID\r\nCLIENT NONE\r\n");
    let mut count = |command: &str| {
        let names = ["calls", "failed_calls", "rejected_calls"];
        names.map(|name| field(&mut house, command, name).unwrap_or(-1.0))
    };
    assert_eq!(count("set"), [1.0, 0.0, 1.0]);
    assert_eq!(count("incr"), [1.0, 1.0, 0.0]);
    assert_eq!(count("client|id"), [1.0, 0.0, 0.0]);
    assert_eq!(count("client"), [0.0, 0.0, 1.0]);
    assert_eq!(count("zadd"), [-1.0; 3]);
    house.say(&mut client, b"MULTI\r\nSET a 1\r\nINCR a\r\nPING\r\nDEBUG POPULATE 1\r\nEXEC\r\n");
    let mut count = |command: &str| {
        ["calls", "failed_calls"].map(|name| field(&mut house, command, name).unwrap_or(-1.0))
    };
    assert_eq!(count("set"), [2.0, 0.0]);
    assert_eq!(count("incr"), [2.0, 1.0]);
    assert_eq!(count("multi"), [1.0, 0.0]);
    assert_eq!(count("exec"), [1.0, 0.0]);
    assert_eq!(count("ping"), [1.0, 0.0]);
    // The command was refused there.
    assert_eq!(count("debug"), [1.0, 0.0]);
    house.say(&mut client, b"EXEC\r\nCONFIG RESETSTAT\r\n");
    assert_eq!(field(&mut house, "exec", "calls"), None);
    assert_eq!(field(&mut house, "config|resetstat", "calls"), Some(1.0));
}

/// The time of a client's wait for an element is not the command's.
#[test]
fn waiting_for_an_element_does_not_count() {
    let mut house = House::new(false);
    let (mut waiting, mut pushing) = (house.client(), house.client());
    house.say(&mut waiting, b"BLPOP l 0\r\n");
    assert_eq!(field(&mut house, "blpop", "calls"), None);
    std::thread::sleep(std::time::Duration::from_millis(1_000));
    house.say(&mut pushing, b"RPUSH l a\r\n");
    assert_eq!(house.say(&mut waiting, b""), "*2 $1 l $1 a ");
    assert_eq!(field(&mut house, "blpop", "calls"), Some(1.0));
    assert!(field(&mut house, "blpop", "usec").unwrap() < 900_000.0);
}

/// Nor is a command lost after a vain wait.
#[test]
fn commands_that_wait_in_vain_are_counted() {
    let mut house = House::new(false);
    let (mut waiting, mut other) = (house.client(), house.client());
    let id = waiting.client.entry.id;
    let counts = |house: &mut House, command: &str| {
        ["calls", "failed_calls", "rejected_calls"].map(|name| field(house, command, name))
    };
    house.say(&mut waiting, b"BLPOP l 0\r\n");
    assert_eq!(counts(&mut house, "blpop"), [None; 3]);
    house.say(&mut other, format!("CLIENT UNBLOCK {id} ERROR\r\n").as_bytes());
    let text = "-UNBLOCKED client unblocked via CLIENT UNBLOCK ";
    assert_eq!(house.say(&mut waiting, b""), text);
    assert_eq!(counts(&mut house, "blpop"), [Some(1.0), Some(1.0), Some(0.0)]);
    house.say(&mut waiting, b"BLPOP l 0.3\r\n");
    std::thread::sleep(std::time::Duration::from_millis(310));
    assert_eq!(house.say(&mut waiting, b""), "*-1 ");
    assert_eq!(counts(&mut house, "blpop"), [Some(2.0), Some(1.0), Some(0.0)]);
    assert_eq!(field(&mut house, "blpop", "usec"), Some(0.0));
    // The waiting client is told nothing twice.
    house.say(&mut other, b"RPUSH l a\r\n");
    assert_eq!(house.say(&mut waiting, b""), "");
    assert_eq!(counts(&mut house, "blpop"), [Some(2.0), Some(1.0), Some(0.0)]);
}

#[test]
fn info_shows_percentiles_of_times() {
    let mut house = House::new(false);
    let mut client = house.client();
    house.say(&mut client, b"SET a b\r\nDEBUG SLEEP 0.02\r\n");
    let info = house.say(&mut client, b"INFO latencystats\r\n");
    let line = |name: &str| {
        let line = info.split(' ').find_map(|line| {
            line.strip_prefix(&format!("latency_percentiles_usec_{name}:")).map(str::to_string)
        });
        line.unwrap_or_default()
    };
    assert!(line("set").starts_with("p50="), "{info}");
    let debug = line("debug");
    assert!(debug.contains(",p99=") && debug.contains(",p99.9="), "{info}");
    let p50: f64 = debug[4..debug.find(',').unwrap()].parse().unwrap();
    assert!(p50 >= 20_000.0, "{debug}");
    let settings = b"CONFIG SET latency-tracking-info-percentiles '0 50.5'\r\n";
    assert_eq!(house.say(&mut client, settings), "+OK ");
    let info = house.say(&mut client, b"INFO latencystats\r\n");
    assert!(info.contains("latency_percentiles_usec_set:p0=") && info.contains(",p50.5="));
    for wrong in ["101", "-1", "x", "nan"] {
        let set = format!("CONFIG SET latency-tracking-info-percentiles {wrong}\r\n");
        assert!(house.say(&mut client, set.as_bytes()).starts_with("-ERR"), "{wrong}");
    }
    house.say(&mut client, b"CONFIG SET latency-tracking no\r\nCONFIG RESETSTAT\r\nGET a\r\n");
    let info = house.say(&mut client, b"INFO latencystats\r\n");
    assert!(!info.contains("latency_percentiles"), "{info}");
}

/// The commands in the slow log, the newest first.
fn slow(house: &mut House) -> Vec<String> {
    let entries = house.shared.stats.slow_log.last(usize::MAX);
    let text = |args: &[Vec<u8>]| {
        args.iter().map(|arg| String::from_utf8_lossy(arg)).collect::<Vec<_>>().join(" ")
    };
    entries.iter().map(|entry| text(&entry.args)).collect()
}

#[test]
fn the_slow_log_has_commands_that_took_as_long_as_is_set() {
    let mut house = House::new(false);
    let mut client = house.client();
    // On a busy machine any command may take some milliseconds.
    house.say(&mut client, b"CONFIG SET slowlog-log-slower-than 60000000\r\n");
    assert_eq!(house.say(&mut client, b"SET a b\r\nSLOWLOG LEN\r\n"), "+OK :0 ");
    let second = b"CLIENT SETNAME me\r\nCONFIG SET slowlog-log-slower-than 1000000\r\n";
    house.say(&mut client, second);
    house.say(&mut client, b"SET a b\r\nDEBUG SLEEP 1.01\r\nPING\r\n");
    let reply = house.say(&mut client, b"SLOWLOG GET\r\n");
    let parts: Vec<&str> = reply.split(' ').collect();
    assert_eq!(parts[..3], ["*1", "*6", ":0"], "{reply}");
    let seconds: u64 = parts[3][1..].parse().unwrap();
    assert!(seconds.abs_diff(crate::base::clock::wall_us() / 1_000_000) < 60);
    let micros: u64 = parts[4][1..].parse().unwrap();
    assert!((1_010_000..10_000_000).contains(&micros), "{micros}");
    let command = ["*3", "$5", "DEBUG", "$5", "SLEEP", "$4", "1.01"];
    assert_eq!(parts[5..12], command, "{reply}");
    assert_eq!(parts[12..16], ["$11", "127.0.0.1:1", "$2", "me"], "{reply}");
    // Commands in MULTI are listed by themselves, and EXEC is not; refused commands are not either.
    house.say(&mut client, b"SLOWLOG RESET\r\nCONFIG SET slowlog-log-slower-than 0\r\n");
    house.say(&mut client, b"MULTI\r\nSET a 1\r\nINCR a\r\nEXEC\r\nGET\r\nLPUSH a x\r\n");
    house.say(&mut client, b"CONFIG SET slowlog-log-slower-than -1\r\nGET a\r\n");
    let set = "CONFIG SET slowlog-log-slower-than 0";
    assert_eq!(slow(&mut house), ["LPUSH a x", "INCR a", "SET a 1", "MULTI", set]);
    assert_eq!(house.say(&mut client, b"SLOWLOG LEN\r\n"), ":5 ");
    assert!(house.say(&mut client, b"SLOWLOG GET -1\r\n").starts_with("*5 *6 :5 "));
    assert!(house.say(&mut client, b"SLOWLOG GET 2\r\n").starts_with("*2 *6 :5 "));
    assert_eq!(house.say(&mut client, b"SLOWLOG GET 0\r\n"), "*0 ");
    let wrong = "-ERR count should be greater than or equal to -1 ";
    assert_eq!(house.say(&mut client, b"SLOWLOG GET -2\r\nSLOWLOG GET x\r\n"), wrong.repeat(2));
    house.say(&mut client, b"CONFIG SET slowlog-max-len 2 slowlog-log-slower-than 0\r\n");
    house.say(&mut client, b"GET a\r\nGET b\r\n");
    assert_eq!(slow(&mut house), ["GET b", "GET a"]);
    house.say(&mut client, b"CONFIG SET slowlog-max-len 0\r\n");
    assert_eq!(slow(&mut house), [""; 0]);
    assert!(house.say(&mut client, b"SLOWLOG HELP\r\n").starts_with('*'));
    assert!(house.say(&mut client, b"SLOWLOG NONE\r\n").starts_with("-ERR unknown subcommand"));
}

#[test]
fn the_slow_log_shows_no_passwords() {
    let mut house = House::new(false);
    let mut client = house.client();
    house.say(&mut client, b"CONFIG SET slowlog-log-slower-than 0\r\n");
    let lines = [
        "ACL SETUSER me on >secret +@all ~*",
        "ACL SETUSR me >secret",
        "AUTH me secret",
        "AUTH me secret1",
        "HELLO 3 AUTH me secret",
        "CONFIG SET timeout 0 requirepass secret",
        "ACL DRYRUN me AUTH secret",
        "MULTI",
        "CONFIG SET requirepass secret",
        "EXEC",
        "ACL DELUSER me",
    ];
    lines.iter().for_each(|line| {
        house.say(&mut client, format!("{line}\r\n").as_bytes());
    });
    let all = slow(&mut house);
    assert!(all.iter().all(|line| !line.contains("secret")), "{all:?}");
    assert!(all.contains(&"CONFIG SET timeout 0 requirepass (redacted)".to_string()), "{all:?}");
    assert!(all.contains(&"AUTH (redacted) (redacted)".to_string()), "{all:?}");
    assert!(all.contains(&"HELLO 3 AUTH (redacted) (redacted)".to_string()), "{all:?}");
}

#[test]
fn histograms_of_commands_and_their_subcommands() {
    let mut house = House::new(false);
    let mut client = house.client();
    house.say(
        &mut client,
        b"SET a b\r\nSET c d\r\nCLIENT ID\r\nCLIENT LIST\r\nDEBUG SLEEP 0.02\r\n",
    );
    let mut ask =
        |names: &str| house.say(&mut client, format!("LATENCY HISTOGRAM {names}\r\n").as_bytes());
    assert!(ask("set").starts_with("*2 $3 set *4 $5 calls :2 $14 histogram_usec *"));
    let said = ask("CLIENT");
    assert!(said.starts_with("*4 $9 client|id *4 ") && said.contains(" $11 client|list *4 "));
    assert!(ask("client|id").starts_with("*2 $9 client|id *4 "));
    assert_eq!(ask("cli none hgetall"), "*0 ");
    assert!(ask("none set").starts_with("*2 $3 set "));
    // 0.02 s is between 16.8 and 33.6 ms, or more on a busy machine; the last number is of all.
    let said = ask("debug");
    let numbers = said.split("histogram_usec *").nth(1).unwrap();
    let numbers: Vec<u64> =
        numbers.split(' ').filter_map(|word| word[1.min(word.len())..].parse().ok()).collect();
    assert!(numbers.len() == 2 && numbers[0] >= 33_000 && numbers[1] == 1, "{said}");
    // The histogram of LATENCY itself is there as well, like all others.
    assert!(ask("").starts_with("*10 $9 client|id "), "{}", ask(""));
    house.say(&mut client, b"CONFIG RESETSTAT\r\n");
    let said = house.say(&mut client, b"HELLO 3\r\nLATENCY HISTOGRAM config\r\n");
    assert!(said.contains("%1 $16 config|resetstat %2 $5 calls :1 $14 histogram_usec %1 :"));
}

#[test]
fn what_is_known_of_memory() {
    let mut house = House::new(false);
    let mut client = house.client();
    house.say(&mut client, b"SET a b\r\n");
    let said = house.say(&mut client, b"MEMORY STATS\r\n");
    let parts: Vec<&str> = said.split(' ').collect();
    let names = [parts[2], parts[5], parts[8]];
    assert_eq!(names, ["process.resident", "process.resident.peak", "keys.count"], "{said}");
    let number = |at: usize| parts[at][1..].parse::<u64>().unwrap();
    assert!(number(3) > 1 << 20 && number(6) > 1 << 20 && number(9) == 1, "{said}");
    assert!(house.say(&mut client, b"MEMORY DOCTOR\r\n").contains("1 keys"));
}

#[test]
fn commands_that_take_long_are_events_of_latency() {
    let mut house = House::new(false);
    let mut client = house.client();
    // No event is recorded, then no short event.
    house.say(&mut client, b"DEBUG SLEEP 0.02\r\nCONFIG SET latency-monitor-threshold 60000\r\n");
    assert_eq!(house.say(&mut client, b"DEBUG SLEEP 0.02\r\nLATENCY LATEST\r\n"), "+OK *0 ");
    assert!(house.say(&mut client, b"LATENCY DOCTOR\r\n").contains("has taken 60000 ms"));
    house.say(&mut client, b"CONFIG SET latency-monitor-threshold 500\r\nDEBUG SLEEP 0.5\r\n");
    let said = house.say(&mut client, b"LATENCY LATEST\r\n");
    let rest = said.strip_prefix("*1 *4 $7 command :").expect("an event");
    let numbers: Vec<u64> =
        rest.split(' ').flat_map(|n| n.trim_start_matches(':').parse()).collect();
    assert!(numbers.len() == 3 && numbers[1] >= 500 && numbers[2] == numbers[1], "{said}");
    let history = house.say(&mut client, b"LATENCY HISTORY command\r\n");
    assert_eq!(history, format!("*1 *2 :{} :{} ", numbers[0], numbers[1]));
    assert!(house.say(&mut client, b"LATENCY GRAPH command\r\n").contains("command - high "));
    assert!(house.say(&mut client, b"LATENCY DOCTOR\r\n").contains("command: 1 latency spikes"));
    // Events of a command with a constant time for any data have a name of their own.
    let members = (0..50_000).map(|n| format!("$6\r\n{n:06}\r\n")).collect::<String>();
    house.say(&mut client, b"CONFIG SET latency-monitor-threshold 1\r\n");
    let sadd = format!("*50002\r\n$4\r\nSADD\r\n$1\r\ns\r\n{members}");
    assert_eq!(house.say(&mut client, sadd.as_bytes()), ":50000 ");
    let said = house.say(&mut client, b"LATENCY LATEST\r\n");
    assert!(said.starts_with("*2 *4 $7 command ") && said.contains(" *4 $12 fast-command "));
    assert_eq!(house.say(&mut client, b"LATENCY RESET none fast-command\r\n"), ":1 ");
    house.say(&mut client, b"CONFIG SET latency-monitor-threshold 0\r\n");
    let said = house.say(&mut client, b"DEBUG SLEEP 0.02\r\nLATENCY RESET\r\nLATENCY LATEST\r\n");
    assert_eq!(said, "+OK :1 *0 ");
    let set = b"CONFIG SET latency-monitor-threshold -1\r\n";
    assert!(house.say(&mut client, set).contains("must be a number from 0"));
}

#[test]
fn what_debug_tells_of_an_object() {
    let mut house = House::new(false);
    let mut client = house.client();
    assert_eq!(house.say(&mut client, b"DEBUG OBJECT foo\r\n"), "-ERR no such key ");
    house.say(&mut client, b"SET foo bar\r\nSET n 7\r\nSET e x EX 100\r\nHSET h f v\r\n");
    for (key, encoding, length) in
        [("foo", "embstr", 4), ("n", "int", 2), ("e", "embstr", 2), ("h", "listpack", 14)]
    {
        let said = house.say(&mut client, format!("DEBUG OBJECT {key}\r\n").as_bytes());
        let told = format!(" refcount:1 encoding:{encoding} serializedlength:{length} lru:0 ");
        assert!(said.starts_with("+Value at:0x") && said.contains(&told), "{key}: {said}");
    }
    let said = house.say(&mut client, b"SELECT 1\r\nDEBUG OBJECT foo\r\n");
    assert_eq!(said, "+OK -ERR no such key ");
    // A command run by another thread may not be part of an EXEC.
    let said = house.say(&mut client, b"MULTI\r\nDEBUG OBJECT foo\r\nEXEC\r\n");
    assert!(said.contains("send it outside of MULTI"), "{said}");
    assert_eq!(
        house.say(&mut client, b"SELECT 0\r\nOBJECT FREQ none\r\nOBJECT FREQ foo\r\n"),
        "+OK $-1 -ERR An LFU maxmemory policy is not selected, access frequency not tracked. \
         Please note that when switching between policies at runtime LRU and LFU data will take \
         some time to adjust. "
    );
}

#[test]
fn commands_are_listed_with_their_subcommands() {
    let mut house = House::new(false);
    let mut client = house.client();
    let mut list = |filter: &str| {
        let said = house.say(&mut client, format!("COMMAND LIST {filter}\r\n").as_bytes());
        let words = said.split(' ').map(str::to_string);
        words.filter(|word| word.starts_with(|c: char| c.is_ascii_lowercase())).collect::<Vec<_>>()
    };
    let all = list("");
    for name in ["get", "config", "config|get", "hyades.durability"] {
        assert!(all.iter().any(|command| command == name), "{name}");
    }
    assert!(
        !all.iter().any(|command| command == "psync" || command == "cluster|meet"),
        "it is not built"
    );
    assert_eq!(list("FILTERBY PATTERN set"), ["set"]);
    assert_eq!(list("FILTERBY PATTERN config|*re*"), ["config|resetstat", "config|rewrite"]);
    let admin = list("FILTERBY ACLCAT admin");
    for name in [
        "bgrewriteaof",
        "bgsave",
        "debug",
        "failover",
        "lastsave",
        "monitor",
        "pfdebug",
        "pfselftest",
        "psync",
        "replconf",
        "replicaof",
        "role",
        "save",
        "shutdown",
        "slaveof",
        "sync",
        "config|set",
    ] {
        assert!(admin.iter().any(|command| command == name), "{name}");
    }
    assert!(!admin.iter().any(|command| command == "get" || command == "config"));
    assert_eq!(list("FILTERBY ACLCAT none"), Vec::<String>::new());
    assert_eq!(list("FILTERBY MODULE none"), Vec::<String>::new());
    let keys =
        b"COMMAND GETKEYS EVAL script 2 a b c\r\nCOMMAND GETKEYSANDFLAGS LMOVE a b left left\r\n";
    assert_eq!(
        house.say(&mut client, keys),
        "*2 $1 a $1 b *2 *2 $1 a *3 +RW +access +delete *2 $1 b *2 +RW +insert "
    );
    let said = house.say(&mut client, b"COMMAND GETKEYSANDFLAGS NONE a\r\n");
    assert_eq!(said, "-ERR Invalid command specified ");
}
