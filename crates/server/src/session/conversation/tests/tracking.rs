//! CLIENT TRACKING: messages to clients about written keys, and that no cache is left stale.

use super::*;
use std::collections::{HashMap, VecDeque};
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// Clients of a house, by number.
struct Talk {
    house: House,
    all: Vec<Conversation>,
}

impl Talk {
    fn of(clients: usize) -> Talk {
        let house = House::new(false);
        let all = (0..clients).map(|_| house.client()).collect();
        Talk { house, all }
    }

    /// Says a text as a client; returns the client's output.
    fn say(&mut self, at: usize, text: &str) -> String {
        let bytes = if text.is_empty() { String::new() } else { format!("{text}\r\n") };
        let bytes = bytes.replace('|', "\r\n");
        self.house.say(&mut self.all[at], bytes.as_bytes())
    }

    /// Returns a client's output since.
    fn hear(&mut self, at: usize) -> String {
        self.say(at, "")
    }

    /// A client speaks version 3 of the protocol.
    fn resp3(&mut self, at: usize) {
        assert!(self.say(at, "HELLO 3").starts_with("%7"));
    }
}

fn invalidate(keys: &[&str]) -> String {
    let keys = keys.iter().map(|key| format!("${} {key} ", key.len()));
    format!(">2 $10 invalidate *{} {}", keys.len(), keys.collect::<String>())
}

#[test]
fn a_reader_is_told_once_of_a_write() {
    let mut talk = Talk::of(2);
    talk.resp3(0);
    assert_eq!(talk.say(0, "CLIENT TRACKING ON"), "+OK ");
    assert_eq!(talk.say(0, "GET k|GET other"), "_ _ ");
    assert_eq!(talk.say(1, "SET k 1|SET k 2"), "+OK +OK ");
    assert_eq!(talk.hear(0), invalidate(&["k"]));
    talk.say(1, "SET k 3");
    assert_eq!(talk.hear(0), "");
    // A client's own writes as well, behind their replies.
    assert_eq!(talk.say(0, "GET k"), "$1 3 ");
    let said = talk.say(0, "INCR k") + &talk.hear(0);
    assert_eq!(said, format!(":4 {}", invalidate(&["k"])));
    // A command without writes invalidates nothing, and an error neither.
    talk.say(0, "GET k");
    talk.say(1, "SETNX k 5|LPUSH k a|DEL none");
    assert_eq!(talk.hear(0), "");
    assert_eq!(talk.say(0, "CLIENT TRACKING OFF"), "+OK ");
    talk.say(1, "SET k 6");
    assert_eq!(talk.hear(0), "");
}

#[test]
fn transactions_and_scripts_read_and_write_keys() {
    let mut talk = Talk::of(2);
    talk.resp3(0);
    talk.say(0, "CLIENT TRACKING ON");
    talk.say(0, "MULTI|MGET a b|EXEC");
    talk.say(1, "MULTI|SET b 1|SET b 2|SET a 1|EXEC");
    assert_eq!(talk.hear(0), [invalidate(&["b"]), invalidate(&["a"])].concat());
    let script = "redis.call('GET', KEYS[1]) return redis.call('HGET', KEYS[2], 'f')";
    assert_eq!(talk.say(0, &format!("EVAL \"{script}\" 2 a h")), "_ ");
    talk.say(1, "EVAL \"redis.call('HSET', 'h', 'f', 1) redis.call('DEL', 'b')\" 0");
    assert_eq!(talk.hear(0), invalidate(&["h"]));
    talk.say(1, "EVAL_RO \"return redis.call('GET', 'a')\" 0|RENAME a c");
    assert_eq!(talk.hear(0), invalidate(&["a"]));
    // A command taken back has read, and has not written.
    talk.say(0, "GET c");
    talk.say(1, "EVAL \"redis.pcall('LPUSH', 'c', 'x') return 1\" 0");
    assert_eq!(talk.hear(0), "");
}

#[test]
fn flushes_swaps_and_expiry_are_told() {
    let mut talk = Talk::of(2);
    talk.resp3(0);
    talk.say(0, "CLIENT TRACKING ON|GET k");
    for line in ["FLUSHDB", "FLUSHALL", "SWAPDB 0 1", "MULTI|SET k 1|FLUSHALL|EXEC"] {
        talk.say(1, line);
        assert_eq!(talk.hear(0), ">2 $10 invalidate _ ", "{line}");
    }
    // An expired key is told by the next write of the key.
    talk.say(1, "SET k 1 PX 1");
    talk.say(0, "GET k");
    std::thread::sleep(std::time::Duration::from_millis(5));
    talk.say(1, "DEL k");
    assert_eq!(talk.hear(0), invalidate(&["k"]));
}

#[test]
fn clients_opt_in_and_out() {
    let mut talk = Talk::of(2);
    talk.resp3(0);
    let told = |talk: &mut Talk, line: &str| {
        talk.say(0, line);
        talk.say(1, "MSET a 1 b 1 c 1");
        let heard = talk.hear(0);
        ["a", "b", "c"]
            .into_iter()
            .filter(|key| heard.contains(&invalidate(&[key])))
            .collect::<String>()
    };
    talk.say(0, "CLIENT TRACKING ON OPTIN");
    assert_eq!(told(&mut talk, "GET a"), "");
    assert_eq!(told(&mut talk, "CLIENT CACHING YES|GET a|GET b"), "a");
    assert_eq!(told(&mut talk, "CLIENT CACHING YES|PING|GET b"), "");
    assert_eq!(told(&mut talk, "CLIENT CACHING YES|CLIENT ID|GET b"), "b");
    assert_eq!(told(&mut talk, "CLIENT CACHING YES|MULTI|GET a|GET b|EXEC|GET c"), "ab");
    assert_eq!(told(&mut talk, "MULTI|CLIENT CACHING YES|GET a|EXEC|GET c"), "a");
    assert_eq!(told(&mut talk, "CLIENT CACHING YES|EVAL \"return redis.call('GET', 'a')\" 0"), "a");
    talk.say(0, "CLIENT TRACKING OFF|CLIENT TRACKING ON OPTOUT");
    assert_eq!(told(&mut talk, "GET a|GET b"), "ab");
    assert_eq!(told(&mut talk, "CLIENT CACHING NO|GET a|GET b"), "b");
    assert_eq!(told(&mut talk, "CLIENT CACHING NO|MULTI|GET a|EXEC|GET c"), "c");
}

#[test]
fn all_keys_with_a_prefix_are_told() {
    let mut talk = Talk::of(3);
    talk.resp3(0);
    talk.say(0, "CLIENT TRACKING ON BCAST PREFIX a PREFIX b");
    talk.say(1, "MULTI|SET a1 1|SET b1 1|SET a2 1|SET c 1|EXEC");
    assert_eq!(talk.hear(0), [invalidate(&["a1", "a2"]), invalidate(&["b1"])].concat());
    talk.say(0, "CLIENT TRACKING ON BCAST PREFIX c NOLOOP");
    talk.say(1, "SET c 2");
    assert_eq!(talk.hear(0), invalidate(&["c"]));
    assert_eq!(talk.say(0, "SET c 3|SET a1 3") + &talk.hear(0), "+OK +OK ");
    talk.resp3(2);
    talk.say(2, "CLIENT TRACKING ON BCAST");
    talk.say(1, "SET other 1");
    assert_eq!((talk.hear(0), talk.hear(2)), (String::new(), invalidate(&["other"])));
}

#[test]
fn another_connection_is_told() {
    let mut talk = Talk::of(4);
    let id = |talk: &mut Talk, at| talk.say(at, "CLIENT ID").trim_matches([':', ' ']).to_string();
    let (second, third) = (id(&mut talk, 1), id(&mut talk, 2));
    assert_eq!(talk.say(0, &format!("CLIENT TRACKING ON REDIRECT {second}")), "+OK ");
    assert_eq!(talk.say(0, "CLIENT GETREDIR"), format!(":{second} "));
    talk.say(1, "SUBSCRIBE __redis__:invalidate");
    talk.say(0, "GET k");
    talk.say(3, "SET k 1");
    let message = "*3 $7 message $20 __redis__:invalidate *1 $1 k ";
    assert_eq!((talk.hear(0), talk.hear(1)), (String::new(), message.to_string()));
    talk.say(3, "FLUSHALL");
    assert_eq!(talk.hear(1), "*3 $7 message $20 __redis__:invalidate $-1 ");
    // Version 3 needs no subscription.
    talk.resp3(2);
    talk.resp3(0);
    talk.say(0, &format!("CLIENT TRACKING ON REDIRECT {third}|GET k"));
    talk.say(3, "SET k 2");
    assert_eq!(talk.hear(2), invalidate(&["k"]));
    // The client itself is told that the other connection has gone.
    talk.say(0, "GET k");
    let gone = talk.all.remove(2);
    talk.house.shared.clients.remove(third.parse().unwrap());
    drop(gone);
    talk.say(2, "SET k 3");
    assert_eq!(talk.hear(0), format!(">2 $21 tracking-redir-broken :{third} "));
    let info = talk.say(0, "CLIENT TRACKINGINFO");
    assert!(info.contains("$15 broken_redirect"), "{info}");
    let line = talk.say(0, "CLIENT INFO");
    assert!(line.contains(" flags=tR ") && line.contains(&format!(" redir={third} ")), "{line}");
}

#[test]
fn options_that_do_not_go_together() {
    let begun = "before disabling tracking for this client, and then re-enabling it with a \
                 different mode.";
    for (lines, error) in [
        ("CLIENT TRACKING ON PREFIX a", "PREFIX option requires BCAST mode to be enabled"),
        ("CLIENT TRACKING ON BCAST OPTIN", "OPTIN and OPTOUT are not compatible with BCAST"),
        ("CLIENT TRACKING ON OPTIN OPTOUT", "You can't specify both OPTIN mode and OPTOUT mode"),
        ("CLIENT TRACKING ON REDIRECT 99", "The client ID you want redirect to does not exist"),
        ("CLIENT TRACKING ON REDIRECT x", "value is not an integer or out of range"),
        ("CLIENT TRACKING MAYBE", "syntax error"),
        ("CLIENT TRACKING ON MORE", "syntax error"),
        (
            "CLIENT TRACKING ON|CLIENT TRACKING ON BCAST",
            &format!("You can't switch BCAST mode on/off {begun}"),
        ),
        (
            "CLIENT TRACKING ON OPTIN|CLIENT TRACKING ON OPTOUT",
            &format!("You can't switch OPTIN/OPTOUT mode {begun}"),
        ),
        (
            "CLIENT TRACKING ON BCAST PREFIX ab PREFIX abc",
            "Prefix 'ab' overlaps with another provided prefix 'abc'. Prefixes for a single client \
             must not overlap.",
        ),
        (
            "CLIENT TRACKING ON BCAST PREFIX ab|CLIENT TRACKING ON BCAST PREFIX a",
            "Prefix 'a' overlaps with an existing prefix 'ab'. Prefixes for a single client must \
             not overlap.",
        ),
        (
            "CLIENT CACHING YES",
            "CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or \
             OPTOUT mode enabled",
        ),
        (
            "CLIENT TRACKING ON|CLIENT CACHING YES",
            "CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.",
        ),
        (
            "CLIENT TRACKING ON OPTIN|CLIENT CACHING NO",
            "CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.",
        ),
        ("CLIENT TRACKING ON OPTIN|CLIENT CACHING MAYBE", "syntax error"),
    ] {
        let said = Talk::of(1).say(0, lines);
        assert!(said.ends_with(&format!("-ERR {error} ")), "{lines}: {said}");
    }
}

#[test]
fn how_a_client_tracks_is_shown() {
    let mut talk = Talk::of(1);
    let info = |talk: &mut Talk| talk.say(0, "CLIENT TRACKINGINFO");
    assert_eq!(info(&mut talk), "*6 $5 flags *1 $3 off $8 redirect :-1 $8 prefixes *0 ");
    assert_eq!(talk.say(0, "CLIENT GETREDIR"), ":-1 ");
    talk.say(0, "CLIENT TRACKING ON OPTIN NOLOOP|CLIENT CACHING YES");
    let expected = "*6 $5 flags *4 $2 on $5 optin $11 caching-yes $6 noloop $8 redirect :0 \
                    $8 prefixes *0 ";
    assert_eq!(info(&mut talk), expected);
    talk.say(0, "CLIENT TRACKING OFF|CLIENT TRACKING ON BCAST PREFIX x|CLIENT NO-TOUCH ON");
    let expected = "*6 $5 flags *2 $2 on $5 bcast $8 redirect :0 $8 prefixes *1 $1 x ";
    assert_eq!(info(&mut talk), expected);
    let line = talk.say(0, "CLIENT LIST");
    assert!(line.contains(" flags=tBT ") && line.contains(" redir=0 "), "{line}");
    let all = talk.say(0, "INFO clients|INFO stats");
    for part in ["tracking_clients:1", "tracking_total_prefixes:1", "tracking_total_keys:0"] {
        assert!(all.contains(part), "{part}: {all}");
    }
    talk.say(0, "RESET");
    assert!(talk.say(0, "INFO clients").contains("tracking_clients:0"));
    assert!(talk.say(0, "CLIENT INFO").contains(" flags=N "));
}

#[test]
fn the_keys_that_are_remembered_are_bounded() {
    let mut talk = Talk::of(1);
    talk.resp3(0);
    talk.say(0, "CLIENT TRACKING ON");
    let keys: String = (0..50).map(|key| format!(" k{key}")).collect();
    talk.say(0, &format!("MGET{keys}"));
    assert!(talk.say(0, "INFO stats").contains("tracking_total_keys:50"));
    let said = talk.say(0, "CONFIG SET tracking-table-max-keys 10") + &talk.hear(0);
    assert_eq!(said.matches("invalidate").count(), 40, "{said}");
    let said = talk.say(0, "GET another") + &talk.hear(0);
    assert!(said.starts_with("_ >2 $10 invalidate "), "{said}");
}

/// A message about a write is sent when the write is on disk.
#[test]
fn a_write_is_told_when_it_is_durable() {
    let mut house = House::new(true);
    let (mut reads, mut writes) = (house.client(), house.client());
    reads.feed(b"HELLO 3\r\nCLIENT TRACKING ON\r\nGET k\r\n");
    house.run(&mut reads, 0);
    house.write_log();
    house.queue.drain(|(_, mark)| reads.acknowledged(mark)).unwrap();
    assert!(take(&mut reads).ends_with("+OK _ "));
    writes.feed(b"SET k 1\r\n");
    house.run(&mut writes, 1);
    house.run(&mut reads, 0);
    assert_eq!((take(&mut writes), take(&mut reads)), (String::new(), String::new()));
    house.write_log();
    house.queue.drain(|(_, mark)| writes.acknowledged(mark)).unwrap();
    house.run(&mut reads, 0);
    assert_eq!((take(&mut writes), take(&mut reads)), ("+OK ".into(), invalidate(&["k"])));
}

/// A transaction run by another thread: earlier messages to the client stand in front of the reply,
/// and are sent again behind the reply.
#[test]
fn what_was_told_before_the_reply_of_another_thread_is_told_behind_it() {
    let mut house = House::new(false);
    let (mut reads, mut writes) = (house.client(), house.client());
    house.say(&mut reads, b"HELLO 3\r\nCLIENT TRACKING ON\r\n");
    reads.feed(format!("MULTI\r\n{}EXEC\r\n", "GET k\r\n".repeat(1_100)).as_bytes());
    let (mut parked, shared) = (Vec::new(), house.shared.clone());
    let job = loop {
        let session = Some(&mut house.session);
        reads.run(&mut Turn { shared: &shared, session, parked: &mut parked, snapshot: None });
        take(&mut reads);
        if let Some(job) = reads.take_job() {
            break job;
        }
    };
    let reply = job.run(&shared, true);
    house.say(&mut writes, b"SET k 1\r\n");
    assert_eq!(house.say(&mut reads, b""), invalidate(&["k"]));
    assert!(reads.job_done(&shared, reply).is_none_or(|(ticket, _)| ticket.wait().is_ok()));
    let said = house.say(&mut reads, b"");
    assert!(said.starts_with("*1100 _ _ "), "{said}");
    assert!(said.ends_with(&format!("_ {}", invalidate(&["k"]))), "{said}");
    // Nothing is told again where nothing was written.
    house.say(&mut reads, b"GET k\r\n");
    assert_eq!(house.say(&mut reads, b""), "");
}

/// The cache of a client: the received values, in the order of arrival.
#[derive(Default)]
struct Cache(HashMap<String, u64>);

impl Cache {
    /// Takes in the client's output. `asked` are the keys of the replies, in order.
    fn take_in(&mut self, said: &str, asked: &mut VecDeque<String>) {
        let mut words = said.split_whitespace();
        while let Some(word) = words.next() {
            match word.as_bytes()[0] {
                b'>' => {
                    let [_, _, keys] = [(); 3].map(|()| words.next().unwrap());
                    if keys == "_" {
                        self.0.clear();
                        continue;
                    }
                    for _ in 0..keys[1..].parse::<usize>().unwrap() {
                        words.next();
                        self.0.remove(words.next().unwrap());
                    }
                }
                b'$' => {
                    let value = words.next().unwrap().parse().unwrap();
                    self.0.insert(asked.pop_front().unwrap(), value);
                }
                b'_' => drop(asked.pop_front()),
                _ => panic!("{said}"),
            }
        }
    }
}

/// Threads write keys that other clients read and cache, while clients begin to track and end.
/// Whatever the order, when all writers are silent each cached value is the value of the server.
#[test]
fn no_cache_is_left_stale() {
    const KEYS: u64 = 4;
    for round in 0..20 {
        let house = House::new(false);
        let (begin, ended) = (Barrier::new(4), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for writer in 0..2 {
                let (mut house, begin, ended) = (house.beside(), &begin, &ended);
                scope.spawn(move || {
                    let mut rng = fastrand::Rng::with_seed(round * 10 + writer);
                    let mut client = house.client();
                    begin.wait();
                    for value in 0..120 {
                        let line = format!("SET k{} {}\r\n", rng.u64(..KEYS), value * 2 + writer);
                        house.say(&mut client, line.as_bytes());
                    }
                    ended.fetch_add(1, SeqCst);
                });
            }
            let readers: Vec<_> = (0..2)
                .map(|reader| {
                    let (mut house, begin, ended) = (house.beside(), &begin, &ended);
                    scope.spawn(move || {
                        let mut rng = fastrand::Rng::with_seed(round * 10 + 5 + reader);
                        let mut client = house.client();
                        let (mut cache, mut asked) = (Cache::default(), VecDeque::new());
                        house.say(&mut client, b"HELLO 3\r\n");
                        begin.wait();
                        let mut tracks = false;
                        while ended.load(SeqCst) < 2 || !tracks {
                            if !tracks || rng.u8(..30) == 0 {
                                let line = "CLIENT TRACKING OFF\r\nCLIENT TRACKING ON\r\n";
                                let said = house.say(&mut client, line.as_bytes());
                                assert!(said.ends_with("+OK ") || said.contains('>'), "{said}");
                                (tracks, cache) = (true, Cache::default());
                            }
                            let key = format!("k{}", rng.u64(..KEYS));
                            asked.push_back(key.clone());
                            let line = match rng.u8(..4) {
                                0 => format!("EVAL \"return redis.call('GET', '{key}')\" 0\r\n"),
                                _ => format!("GET {key}\r\n"),
                            };
                            let said = house.say(&mut client, line.as_bytes());
                            cache.take_in(&said, &mut asked);
                        }
                        (house, client, cache, asked)
                    })
                })
                .collect();
            let readers: Vec<_> =
                readers.into_iter().map(|thread| thread.join().unwrap()).collect();
            let mut house = house.beside();
            let mut looks = house.client();
            for (mut own, mut client, mut cache, mut asked) in readers {
                // The writes of the writers are on disk, and were told.
                let said = own.say(&mut client, b"");
                cache.take_in(&said, &mut asked);
                for (key, value) in &cache.0 {
                    let now = house.say(&mut looks, format!("GET {key}\r\n").as_bytes());
                    assert!(
                        now.ends_with(&format!(" {value} ")),
                        "round {round}: {key}={value}: {now}"
                    );
                }
            }
        });
    }
}
