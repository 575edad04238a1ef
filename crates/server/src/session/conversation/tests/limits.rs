//! Input held back behind waiting replies, too large replies, and too large writes.

use super::*;
use crate::base::clock::thread_seconds;
use std::sync::atomic::Ordering::Relaxed;

fn sets(from: usize, count: usize) -> String {
    (from..from + count).map(|n| format!("SET k{n} v\r\n")).collect()
}

/// A loop has to know of the work: no event of the socket will tell.
#[test]
fn what_is_held_back_is_work() {
    let mut house = House::new(true);
    let mut client = house.client();
    client.feed(sets(0, 1_100).as_bytes());
    house.run(&mut client, 0);
    assert!(client.is_full() && client.has_work() && !client.is_idle());
    house.write_log();
    house.queue.drain(|(_, mark)| client.acknowledged(mark)).unwrap();
    assert_eq!(take(&mut client).matches("+OK").count(), 1_024);
    assert!(!client.is_full() && client.has_work());
    house.run(&mut client, 0);
    assert!(!client.has_work() && client.output().is_empty());
    house.write_log();
    house.queue.drain(|(_, mark)| client.acknowledged(mark)).unwrap();
    assert_eq!(take(&mut client).matches("+OK").count(), 76);
    assert!(client.is_idle());
}

#[test]
fn a_request_that_was_set_aside_is_work() {
    let mut house = House::new(true);
    let mut client = house.client();
    client.feed(sets(0, 1_000).as_bytes());
    house.run(&mut client, 0);
    let gets: String = (0..24).map(|n| format!("GET k{n}\r\n")).collect();
    client.feed(format!("{gets}SET last 1\r\n").as_bytes());
    house.run(&mut client, 0);
    assert!(client.is_full() && client.has_work());
    assert_eq!(client.input_bytes(), 0, "no input tells of it");
    house.write_log();
    house.queue.drain(|(_, mark)| client.acknowledged(mark)).unwrap();
    take(&mut client);
    house.run(&mut client, 0);
    house.write_log();
    house.queue.drain(|(_, mark)| client.acknowledged(mark)).unwrap();
    assert_eq!(take(&mut client), "+OK ");
}

/// An incomplete request needs input, and is no work; a client too far ahead is not read.
#[test]
fn an_incomplete_request_is_no_work() {
    let mut house = House::new(true);
    let mut client = house.client();
    client.feed(b"SET a");
    house.run(&mut client, 0);
    assert!(!client.has_work());
    client.feed(sets(0, 20_000).as_bytes());
    assert!(client.has_work() && client.is_ahead());
    let mut other = house.client();
    other.feed(format!("*2\r\n$3\r\nGET\r\n$200000\r\n{}", "x".repeat(100_000)).as_bytes());
    house.run(&mut other, 1);
    assert!(!other.is_ahead());
}

/// Each writes a row for each database: another thread runs an EXEC with many.
#[test]
fn many_flushes_are_too_much_for_a_loop() {
    let mut house = House::new(false);
    let mut client = house.client();
    for (count, large) in [(10, 0), (1_000, 1)] {
        let lines = "FLUSHALL\r\n".repeat(count);
        let said = house.say(&mut client, format!("MULTI\r\n{lines}EXEC\r\n").as_bytes());
        assert_eq!(said.matches("+OK").count(), 1 + count);
        assert_eq!(house.shared.stats.counters.large.load(Relaxed), large, "{count}");
    }
}

/// A pattern of SORT is looked through for each element.
#[test]
fn a_long_pattern_for_many_elements_is_too_much_for_a_loop() {
    let mut house = House::new(false);
    let mut client = house.client();
    let elements: String = (0..100).map(|n| format!(" {n}")).collect();
    assert_eq!(house.say(&mut client, format!("RPUSH l{elements}\r\n").as_bytes()), ":100 ");
    for (length, large) in [(60, 0), (60_000, 1)] {
        let line = format!("SORT l BY nosort GET {}\r\n", "x".repeat(length));
        let said = house.say(&mut client, line.as_bytes());
        assert_eq!(said, format!("*100 {}", "$-1 ".repeat(100)));
        assert_eq!(house.shared.stats.counters.large.load(Relaxed), large, "{length} bytes");
    }
}

#[test]
fn many_large_replies_are_not_made_before_the_first_are_sent() {
    let mut house = House::new(false);
    let mut client = house.client();
    let value = "x".repeat(400 << 10);
    assert_eq!(house.say(&mut client, format!("SET a {}\r\n", "y").as_bytes()), "+OK ");
    let set = format!("*3\r\n$3\r\nSET\r\n$1\r\na\r\n${}\r\n{value}\r\n", value.len());
    assert_eq!(house.say(&mut client, set.as_bytes()), "+OK ");
    client.feed("GET a\r\n".repeat(60).as_bytes());
    house.run(&mut client, 0);
    assert!(client.output_bytes() < 4 << 20, "{}", client.output_bytes());
    let said = house.say(&mut client, b"");
    assert_eq!(said.matches("$409600").count(), 60);
    let together = format!("MULTI\r\n{}EXEC\r\n", "GET a\r\n".repeat(3));
    assert_eq!(house.say(&mut client, together.as_bytes()).matches("$409600").count(), 3);
}

#[test]
fn a_reply_that_is_too_long_is_an_error() {
    let mut house = House::new(false);
    let mut client = house.client();
    house.say(&mut client, format!("SADD s {}\r\n", "m".repeat(1_000)).as_bytes());
    let said = house.say(&mut client, b"SRANDMEMBER s -1048576\r\nPING\r\n");
    assert_eq!(said, "-ERR the reply is longer than 512 MiB +PONG ");
}

/// The client is disconnected. An element not replied is still there; but EXEC is done as a whole.
#[test]
fn a_command_whose_reply_is_not_sent_is_not_done() {
    let limit = "CONFIG SET client-output-buffer-limit \"normal 1000 0 0\"";
    let exec = "MULTI\r\nINCR n\r\nGETDEL long\r\nINCR n\r\nEXEC";
    for (line, is_cut, left) in [
        ("GETDEL fits", false, "$-1 :1 :0 "),
        ("GETDEL long", true, "$-1 :1 :1 "),
        (exec, true, "$1 2 :0 :1 "),
        // Dropped replies wait for no client.
        ("CLIENT REPLY OFF\r\nGETDEL long", false, "$-1 :0 :1 "),
        ("CLIENT REPLY SKIP\r\nGETDEL long", false, "$-1 :0 :1 "),
        ("CLIENT REPLY OFF\r\nMULTI\r\nINCR n\r\nGETDEL long\r\nEXEC", false, "$1 1 :0 :1 "),
        ("CLIENT REPLY OFF\r\nCOMMAND", false, "$-1 :1 :1 "),
        ("COMMAND", true, "$-1 :1 :1 "),
    ] {
        let mut house = House::new(false);
        let (mut client, mut other) = (house.client(), house.client());
        house.say(&mut other, b"SETRANGE fits 998 x\r\nSETRANGE long 1000 x\r\n");
        house.say(&mut other, format!("{limit}\r\n").as_bytes());
        house.say(&mut client, format!("{line}\r\n").as_bytes());
        assert_eq!(client.client.entry.is_over_limit.load(Relaxed), is_cut, "{line}");
        let said = house.say(&mut other, b"GET n\r\nEXISTS long\r\nEXISTS fits\r\n");
        assert_eq!(said, left, "{line}");
    }
}

/// A count of random elements is bounded by the size of the reply, and by the size of a
/// transaction.
#[test]
fn any_number_of_random_elements_is_drawn() {
    let mut house = House::new(false);
    let mut client = house.client();
    house.say(&mut client, b"SADD s a b\r\nHSET h f v g w\r\nZADD z 1 m 2 n\r\nHELLO 3\r\n");
    // With the bytes of an element.
    for (line, element) in [
        ("SRANDMEMBER s -COUNT", 7),
        ("HRANDFIELD h -COUNT", 7),
        ("HRANDFIELD h -COUNT WITHVALUES", 4 + 7 + 7),
        ("ZRANDMEMBER z -COUNT", 7),
        ("ZRANDMEMBER z -COUNT WITHSCORES", 4 + 7 + 4),
    ] {
        for count in [1_048_576, 1_048_577] {
            let line = line.replace("COUNT", &count.to_string()) + "\r\n";
            let said = house.replies(&mut client, line.as_bytes());
            let head = format!("*{count}\r\n");
            assert!(said.starts_with(head.as_bytes()), "{line}");
            assert_eq!(said.len(), head.len() + count * element, "{line}");
        }
        let line = line.replace("COUNT", "4611686018427387904");
        let said = house.say(&mut client, format!("{line}\r\nPING\r\n").as_bytes());
        let is_pairs = line.contains("WITH");
        let expected = match is_pairs {
            true => "-ERR value is out of range +PONG ",
            false => "-ERR the transaction reads and writes more than 64 MiB +PONG ",
        };
        assert_eq!(said, expected, "{line}");
    }
    for line in ["SRANDMEMBER none -9223372036854775807", "HRANDFIELD none -9223372036854775807"] {
        assert_eq!(house.say(&mut client, format!("{line}\r\n").as_bytes()), "*0 ", "{line}");
    }
    let said = house.say(&mut client, b"SRANDMEMBER s -9223372036854775808\r\n");
    assert_eq!(said, "-ERR value is out of range ");
}

/// Data read once may be replied often: an event loop makes no long reply.
#[test]
fn a_long_reply_of_little_is_a_job() {
    let mut house = House::new(false);
    let mut client = house.client();
    let long = "x".repeat(100 << 10);
    for line in [format!("SADD s {long}"), format!("HSET h f {long}"), format!("ZADD z 1 {long}")] {
        assert_eq!(house.say(&mut client, request(&line).as_bytes()), ":1 ");
    }
    let mut jobs = large_runs(&house);
    for (line, count, is_job) in [
        ("SRANDMEMBER s -50".into(), 50, false),
        ("SRANDMEMBER s -200".into(), 200, true),
        ("HRANDFIELD h -200".into(), 0, false),
        ("HRANDFIELD h -200 WITHVALUES".into(), 200, true),
        ("ZRANDMEMBER z -200".into(), 200, true),
        (format!("HMGET h{}", " f".repeat(50)), 50, false),
        (format!("HMGET h{}", " f".repeat(200)), 200, true),
        (format!("SORT s ALPHA{}", " GET #".repeat(200)), 200, true),
    ] {
        let said = house.say(&mut client, request(&line).as_bytes());
        assert_eq!(said.matches("$102400 ").count(), count, "{line}");
        jobs += u64::from(is_job);
        assert_eq!(large_runs(&house), jobs, "{line}");
    }
}

#[test]
fn multi_does_not_queue_without_end() {
    let mut house = House::new(false);
    let mut client = house.client();
    let set = format!("SET a {}\r\n", "x".repeat(60_000));
    let said = house.say(&mut client, format!("MULTI\r\n{}EXEC\r\n", set.repeat(40)).as_bytes());
    assert!(said.contains("+QUEUED -ERR MULTI has queued more than"), "{said}");
    assert!(said.ends_with("-EXECABORT Transaction discarded because of previous errors. "));
    assert_eq!(house.say(&mut client, b"EXISTS a\r\n"), ":0 ");
}

/// Small arguments take more memory than their bytes.
#[test]
fn multi_counts_what_its_commands_take() {
    let mut house = House::new(false);
    let mut client = house.client();
    let touch = format!("TOUCH{}\r\n", " a".repeat(1_000));
    let said = house.say(&mut client, format!("MULTI\r\n{}", touch.repeat(40)).as_bytes());
    assert_eq!(said.matches("+QUEUED").count(), 31);
}

/// A large record may have to wait for the disk while it is logged: no loop does.
#[test]
fn large_writes_are_jobs() {
    let mut house = House::new(false);
    let mut client = house.client();
    let value = "x".repeat(700 << 10);
    let set = format!("*3\r\n$3\r\nSET\r\n$1\r\na\r\n${}\r\n{value}\r\nSET b 1\r\n", value.len());
    client.feed(set.as_bytes());
    let mut parked = Vec::new();
    let session = Some(&mut house.session);
    let next = client.run(&mut Turn {
        shared: &house.shared,
        session,
        parked: &mut parked,
        snapshot: None,
    });
    let job = client.take_job().expect("the large SET is a job");
    assert!(next == Next::Wait && parked.is_empty() && client.is_full());
    let parked = client.job_done(&house.shared, job.run(&house.shared, false));
    parked.into_iter().for_each(|(ticket, mark)| house.queue.push(ticket, (0, mark)));
    assert_eq!(house.say(&mut client, b"STRLEN a\r\n"), "+OK +OK :716800 ");
    assert_eq!(house.say(&mut client, b"STRLEN b\r\nDBSIZE\r\n"), ":1 :2 ");
    let multi = "MULTI\r\nAPPEND a b\r\nINCRBY a 1\r\nSET c 1\r\nEXEC\r\n";
    let not_a_number = "-ERR value is not an integer or out of range";
    let said = house.say(&mut client, multi.as_bytes());
    assert_eq!(said, format!("+OK +QUEUED +QUEUED +QUEUED *3 :716801 {not_a_number} +OK "));
    let info = house.say(&mut client, b"INFO hyades\r\n");
    assert!(info.contains("runs_alone:0 runs_large:2"), "{info}");
}

/// The thread of a large write does not wait for the disk: other jobs run meanwhile, and no reply
/// leaves before its own write is durable.
#[test]
fn large_writes_do_not_wait_for_each_other() {
    let mut house = House::new(true);
    let (mut client, mut silent) = (house.client(), house.client());
    let set = request(&format!("SET a {}", "x".repeat(600 << 10)));
    client.feed(format!("{set}APPEND a y\r\nPING\r\n").as_bytes());
    house.run(&mut client, 0);
    silent.feed(format!("CLIENT REPLY OFF\r\n{set}").as_bytes());
    house.run(&mut silent, 1);
    assert_eq!((take(&mut client), house.queue.len(), large_runs(&house)), ("".into(), 3, 3));
    house.write_log();
    let drained = house.queue.drain(|(number, mark)| match number {
        0 => client.acknowledged(mark),
        _ => silent.acknowledged(mark),
    });
    drained.unwrap();
    assert_eq!(take(&mut client), "+OK :614401 +PONG ");
    assert_eq!((take(&mut silent), silent.is_idle()), ("".into(), true));
}

#[test]
fn a_silent_client_hears_nothing_of_exec_either() {
    transcript(&[
        ("CLIENT REPLY OFF", ""),
        ("MULTI", ""),
        ("SET a 1", ""),
        ("EXEC", ""),
        ("CLIENT REPLY ON", "+OK"),
        ("GET a", "$1 1"),
        ("MULTI", "+OK"),
        ("SET a 2", "+QUEUED"),
        ("GET a", "+QUEUED"),
        ("EXEC", "*2 +OK $1 2"),
        (
            "CONFIG SET proto-max-bulk-len 1kb",
            "-ERR CONFIG SET failed (possibly related to argument 'proto-max-bulk-len') - argument \
            must be between 1048576 and 1073741824 inclusive: proto-max-bulk-len must be a size \
            from 1048576 to 1073741824 bytes, and not \"1kb\"",
        ),
        ("INFO keyspace", "$44 # Keyspace db0:keys=1,expires=0,avg_ttl=0"),
    ]);
}

/// A page that makes a browser POST to the port cannot have its commands run.
#[test]
fn a_browser_is_not_answered() {
    for line in ["POST / HTTP/1.1", "Host: localhost:6379"] {
        let mut house = House::new(false);
        let mut client = house.client();
        let said = house.say(&mut client, format!("{line}\r\nSET a 1\r\n").as_bytes());
        assert_eq!(said, "");
        assert!(client.is_closing() && client.is_idle());
        let mut other = house.client();
        assert_eq!(house.say(&mut other, b"EXISTS a\r\n"), ":0 ");
    }
}

/// A request of the given words; an inline request may not be long.
fn request(line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    let texts = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
    format!("*{}\r\n{}", words.len(), texts.collect::<String>())
}

fn large_runs(house: &House) -> u64 {
    house.shared.stats.counters.large.load(Relaxed)
}

fn append(times: usize) -> String {
    "APPEND s x\r\n".repeat(times)
}

/// Each APPEND copies the whole string: the run ends after many copied bytes, and goes on in the
/// next run.
#[test]
fn a_run_ends_where_it_has_copied_much() {
    let mut house = House::new(false);
    let mut client = house.client();
    house.say(&mut client, request(&format!("SET s {}", "v".repeat(100_000))).as_bytes());
    let expected: String = (0..1_000).map(|n| format!(":{} ", 100_001 + n)).collect();
    assert_eq!(house.say(&mut client, append(1_000).as_bytes()), expected);
    assert_eq!(large_runs(&house), 0, "none of them is large by itself");
    let shared = house.shared.clone();
    let commits = || shared.store.opened.cloned().database.stats().commits;
    let before = commits();
    client.feed(append(64).as_bytes());
    house.run(&mut client, 0);
    assert!(commits() - before > 10, "{} transactions", commits() - before);
}

/// In MULTI the commands belong together: there is a bound, and an error that names the bound.
#[test]
fn a_transaction_does_not_copy_without_end() {
    let mut house = House::new(false);
    let mut client = house.client();
    house.say(&mut client, request(&format!("SET s {}", "v".repeat(100_000))).as_bytes());
    let input = format!("MULTI\r\nSET a 1\r\n{}EXEC\r\n", append(100));
    assert!(house.say(&mut client, input.as_bytes()).ends_with(":100100 "));
    assert_eq!(large_runs(&house), 1);
    let input = format!("MULTI\r\nSET a 2\r\n{}EXEC\r\n", append(200));
    let said = house.say(&mut client, input.as_bytes());
    let error = "-ERR the transaction reads and writes more than 64 MiB ";
    assert!(said.ends_with(&format!("+QUEUED {error}")), "{}", &said[said.len() - 100..]);
    assert_eq!(house.say(&mut client, b"GET a\r\nSTRLEN s\r\n"), "$1 1 :100100 ");
}

/// A change of a large collection copies a block, and not the whole: many changes in a transaction
/// stay below the bound, here with a sixteenth of the bytes that a server allows.
#[test]
fn a_transaction_fills_a_large_collection() {
    let mut house = House::new(false);
    let mut client = house.client();
    type Counted = (usize, fn(usize) -> String);
    let commands: [Counted; 5] = [
        (2_000, |n| format!("HSET h field:{n} {n}\r\n")),
        (2_000, |n| format!("SADD t member:{n}\r\n")),
        (2_000, |n| format!("RPUSH l element:{n}\r\n")),
        (2_000, |n| format!("LPUSH m element:{n}\r\n")),
        (2_000, |n| format!("ZADD z {n} member:{n}\r\n")),
    ];
    for (count, command) in commands {
        let all: String = (0..count).map(command).collect();
        let said = house.say(&mut client, format!("MULTI\r\n{all}EXEC\r\n").as_bytes());
        let replies = said.split_once(&format!("*{count} ")).map(|(_, replies)| replies);
        let replies =
            replies.unwrap_or_else(|| panic!("{} {}", command(0), &said[said.len() - 99..]));
        assert!(replies.starts_with(":1 ") && !replies.contains('-'), "{}", command(0));
    }
    let counts = b"HLEN h\r\nSCARD t\r\nLLEN l\r\nLLEN m\r\nZCARD z\r\n";
    assert_eq!(house.say(&mut client, counts), ":2000 :2000 :2000 :2000 :2000 ");
}

/// A single command over many keys, or many times over one key, is bounded as well.
#[test]
fn a_command_over_repeated_keys_is_bounded() {
    let mut house = House::new(false);
    let mut client = house.client();
    let value = "x".repeat(100 << 10);
    house.say(&mut client, request(&format!("MSET a {value}")).as_bytes());
    let said = house.say(&mut client, format!("MGET{}\r\n", " a".repeat(50)).as_bytes());
    assert_eq!((said.matches("$102400 ").count(), large_runs(&house)), (50, 1));
    let error = "-ERR the transaction reads and writes more than 64 MiB ";
    for (command, expected) in [("MGET", error), ("BITOP OR b", ":102400 ")] {
        let line = request(&format!("{command}{}", " a".repeat(4_000))) + "PING\r\n";
        let said = house.say(&mut client, line.as_bytes());
        assert_eq!(said, format!("{expected}+PONG "), "{command}");
    }
    house.say(&mut client, request(&format!("RPUSH l{}", " 1".repeat(10_000))).as_bytes());
    house.say(&mut client, request(&format!("ZADD z{}", " 1 a".repeat(10))).as_bytes());
    let sort = request(&format!("SORT l BY x{}", " GET #".repeat(400)));
    assert_eq!(house.say(&mut client, sort.as_bytes()), error);
    let union = request(&format!("ZUNIONSTORE y 3000 {}", "z ".repeat(3_000).trim_end()));
    assert_eq!(house.say(&mut client, union.as_bytes()), ":1 ");
}

/// A long value is not looked through for each key beside it, which would take minutes.
#[test]
fn many_keys_beside_a_large_value_take_little_time() {
    const KEYS: usize = 5_000;
    let mut house = House::new(false);
    let mut client = house.client();
    let words = |text: &str, count: usize| -> String {
        (0..count).map(|n| text.replace('#', &n.to_string())).collect()
    };
    for part in 0..10 {
        let members = words(&format!(" m{part}:#"), 10_000);
        house.say(&mut client, request(&format!("SADD s{members}")).as_bytes());
        let members = words(&format!(" # m{part}:#"), 10_000);
        house.say(&mut client, request(&format!("ZADD z{members}")).as_bytes());
    }
    house.say(&mut client, words("SADD s# other\r\nZADD z# 1 other\r\n", KEYS).as_bytes());
    house.say(&mut client, b"SETBIT b 167772159 1\r\n");
    let began = thread_seconds();
    for (line, key, reply) in [
        ("SDIFFSTORE d s", " s#", ":100000 "),
        ("ZDIFFSTORE d 5001 z", " z#", ":100000 "),
        ("BITOP OR d b", " none#", ":20971520 "),
    ] {
        let line = format!("{line}{}", words(key, KEYS));
        assert_eq!(house.say(&mut client, request(&line).as_bytes()), reply, "{key}");
    }
    let seconds = thread_seconds() - began;
    assert!(seconds < 10.0, "{seconds} s");
}

/// Removals and changes of the time of expiry are logged too.
#[test]
fn many_removals_are_a_job() {
    let mut house = House::new(false);
    let mut client = house.client();
    let keys: Vec<String> = (0..8_000).map(|n| format!("{}{n}", "k".repeat(60))).collect();
    let pairs: Vec<String> = keys.iter().map(|key| format!("{key} v")).collect();
    for pairs in pairs.chunks(500) {
        house.say(&mut client, request(&format!("MSET {}", pairs.join(" "))).as_bytes());
    }
    let before = large_runs(&house);
    let said = house.say(&mut client, request(&format!("DEL {}", keys.join(" "))).as_bytes());
    assert_eq!((said.as_str(), large_runs(&house) - before), (":8000 ", 1));
}

/// `client-query-buffer-limit` counts to the byte, however the request arrives.
#[test]
fn a_request_may_be_as_long_as_the_limit_says() {
    const MOST: usize = 1 << 20;
    let mut house = House::new(false);
    let mut admin = house.client();
    let set = format!("CONFIG SET client-query-buffer-limit {MOST}\r\n");
    assert_eq!(house.say(&mut admin, set.as_bytes()), "+OK ");
    let request = |length: usize| {
        let head = |text: usize| format!("*2\r\n$4\r\nECHO\r\n${text}\r\n");
        let text = length - head(length).len() - 2;
        [head(text).into_bytes(), vec![b'x'; text], b"\r\n".to_vec()].concat()
    };
    let error = format!("-ERR Protocol error: the request is larger than {MOST} bytes ");
    for step in [MOST * 2, 60_000] {
        for (length, is_over) in [(MOST, false), (MOST + 1, true)] {
            let mut client = house.client();
            let mut said = String::new();
            for part in request(length).chunks(step) {
                said += &house.say(&mut client, part);
            }
            assert_eq!(client.is_closing(), is_over, "{length} in parts of {step}");
            assert_eq!(said == error, is_over);
        }
    }
}
