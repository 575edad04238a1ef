//! What a standby serves.

use super::*;

/// A primary, and a standby that follows it.
fn pair() -> (Member, Member) {
    let lanes = service();
    let (mut one, mut two) = (Member::start("one", &lanes), Member::start("two", &lanes));
    let dir = one.path("data");
    one.step(Step::OnLanes(dir));
    two.step(Step::Standby);
    (one, two)
}

/// The state that a member finds in its files may be older than what it has shown as the primary.
#[test]
fn a_standby_is_not_read_before_it_has_caught_up() {
    let lanes = service();
    let (mut one, mut two) = (Member::start("one", &lanes), Member::start("two", &lanes));
    let dir = one.path("data");
    one.step(Step::OnLanes(dir));
    assert_eq!(one.client().ask("SET a 1"), "OK");
    two.see(|view| view.has_caught_up = false);
    two.step(Step::Standby);
    let said = two.ask_until("GET a", |said| said.contains("catches up"));
    assert_eq!(said, "-LOADING the standby catches up");
    assert!(two.client().ask("SET a 2").starts_with("-LOADING"));
    two.see(|view| view.has_caught_up = true);
    two.ask_until("GET a", |said| said == "1");
    // No mark for a while, as of a primary that has gone: the state is shown on.
    two.see(|view| view.has_caught_up = false);
    let seen = |two: &Member| two.client().ask("SET a 2").starts_with("-READONLY");
    two.wait_until("it is a standby", seen);
    std::thread::sleep(Duration::from_millis(60));
    assert_eq!(two.client().ask("GET a"), "1");
    one.stop();
    two.stop();
}

#[test]
fn a_standby_reads_and_refuses_the_rest() {
    let (one, two) = pair();
    let (mut writes, mut reads) = (one.client(), two.client());
    let script = "return redis.call('get', KEYS[1])";
    for text in [
        "SET a 1",
        "RPUSH list x y z",
        "HSET hash f v",
        "ZADD sorted 1 m",
        "SADD set s",
        "XADD stream 1-1 f v",
        "PFADD sketch a b c",
        "SET short x PX 300",
        "SELECT 2",
        "SET two 2",
        "SELECT 0",
    ] {
        assert!(!writes.ask(text).starts_with('-'), "{text}");
    }
    let sha = writes.ask(&format!("SCRIPT LOAD \"{script}\""));
    let id = writes.ask("HYADES.LAST");
    assert_eq!(reads.ask(&format!("HYADES.AFTER {id}")), ":1");
    reads_all_types(&mut reads);
    assert_eq!(reads.ask(&format!("EVALSHA {sha} 1 a")), "1", "loaded at the primary");
    let known = reads.ask("SCRIPT LOAD 'return 7'");
    assert_eq!(reads.ask(&format!("EVALSHA {known} 0")), ":7", "and loaded here");
    let only_read = "-READONLY You can't write against a read only replica.";
    refuses_writes(&mut reads, only_read);
    assert!(reads.ask("EVAL \"return redis.call('set','a','9')\" 0").contains("READONLY"));
    assert!(reads.ask("CLIENT TRACKING ON").contains("not possible on a standby"));
    assert!(reads.ask("SAVE").starts_with("-ERR"), "the member takes checkpoints");
    assert!(reads.ask("HYADES.BACKUP x").starts_with("-ERR"));
    // A transaction that only reads.
    for (text, reply) in
        [("MULTI", "OK"), ("GET a", "QUEUED"), ("LLEN list", "QUEUED"), ("EXEC", "[1 :3]")]
    {
        assert_eq!(reads.ask(text), reply);
    }
    assert_eq!(reads.ask("MULTI"), "OK");
    assert_eq!(reads.ask("SET a 2"), only_read);
    assert!(reads.ask("EXEC").starts_with("-EXECABORT"));
    // Keys expire by the clock.
    std::thread::sleep(Duration::from_millis(400));
    assert_eq!(reads.ask("GET short"), "nil");
    assert_eq!(reads.ask("GET a"), "1");
    counts_and_walks(&mut reads);
    drop((writes, reads));
    two.stop();
    one.stop();
}

fn reads_all_types(reads: &mut Client) {
    for (text, reply) in [
        ("GET a", "1"),
        ("LRANGE list 0 -1", "[x y z]"),
        ("HGETALL hash", "[f v]"),
        ("ZRANGE sorted 0 -1", "[m]"),
        ("SMEMBERS set", "[s]"),
        ("XRANGE stream - +", "[[1-1 [f v]]]"),
        ("XREAD STREAMS stream 0", "[[stream [[1-1 [f v]]]]]"),
        ("PFCOUNT sketch", ":3"),
        ("PFCOUNT sketch", ":3"),
        ("TYPE hash", "hash"),
        ("OBJECT ENCODING a", "int"),
        ("SORT_RO list ALPHA DESC", "[z y x]"),
        ("EVAL_RO \"return redis.call('get','a')\" 0", "1"),
        ("EVAL \"return redis.call('get','a')\" 0", "1"),
        ("UNWATCH", "OK"),
        ("HELLO 2", "[server redis version 7.2.0 proto :2 id"),
    ] {
        let said = reads.ask(text);
        assert!(said.starts_with(reply), "{text}: {said}");
    }
}

fn refuses_writes(reads: &mut Client, only_read: &str) {
    for text in [
        "SET a 2",
        "DEL a",
        "INCR n",
        "BLPOP list 1",
        "XREAD BLOCK 10 STREAMS stream $",
        "WATCH a",
        "FLUSHALL",
        "FUNCTION FLUSH",
        "SCRIPT FLUSH",
        "GETEX a EX 5",
        "DEBUG POPULATE 5",
        "MIGRATE 127.0.0.1 1 a 0 5",
    ] {
        assert_eq!(reads.ask(text), only_read, "{text}");
    }
}

fn counts_and_walks(reads: &mut Client) {
    assert_eq!(reads.ask("DBSIZE"), ":7");
    assert_eq!(reads.ask("MULTI"), "OK");
    assert_eq!(reads.ask("DBSIZE"), "QUEUED");
    assert_eq!(reads.ask("EXEC"), "[:7]");
    let scanned = reads.ask("SCAN 0 COUNT 1000");
    let keys = reads.ask("KEYS *");
    for name in ["a", "list", "hash", "sorted", "set", "stream", "sketch"] {
        assert!(scanned.contains(name) && keys.contains(name), "{scanned} {keys}");
    }
    let random: std::collections::HashSet<String> =
        (0..200).map(|_| reads.ask("RANDOMKEY")).collect();
    assert!(random.len() > 1, "{random:?}");
    assert_eq!(reads.ask("SELECT 2"), "OK");
    assert_eq!(reads.ask("DBSIZE"), ":1");
    assert_eq!(reads.ask("SELECT 0"), "OK");
}

/// Money moves between keys in transactions, and all reads of a turn see one state: the sum is
/// constant, over connections that are read at once as well.
#[test]
fn the_state_of_a_standby_is_whole_and_moves_on() {
    const KEYS: u32 = 20;
    let (one, two) = pair();
    let mut setup = one.client();
    for key in 0..KEYS {
        assert_eq!(setup.ask(&format!("SET k{key} 100")), "OK");
    }
    let id = setup.ask("HYADES.LAST");
    assert_eq!(two.client().ask(&format!("HYADES.AFTER {id} 60000")), ":1");
    let stop = AtomicBool::new(false);
    let names: Vec<String> = (0..KEYS).map(|key| format!("k{key}")).collect();
    let mget = format!("MGET {}", names.join(" "));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let (mut client, stop) = (one.client(), &stop);
            scope.spawn(move || {
                while !stop.load(SeqCst) {
                    let [from, to] = [(); 2].map(|()| fastrand::u32(0..KEYS));
                    client.send(&format!(
                        "MULTI\r\nDECRBY k{from} 3\r\nINCRBY k{to} 3\r\nINCR moves\r\nEXEC"
                    ));
                    (0..5).for_each(|_| drop(client.next()));
                }
            });
        }
        let readers: Vec<_> = (0..3)
            .map(|_| {
                let (mut client, mget) = (two.client(), &mget);
                scope.spawn(move || {
                    let mut last = 0;
                    for _ in 0..300 {
                        let said = client.ask(mget);
                        let sum: i64 = said
                            .trim_matches(['[', ']'])
                            .split(' ')
                            .map(|n| n.parse::<i64>().unwrap())
                            .sum();
                        assert_eq!(sum, i64::from(KEYS) * 100, "{said}");
                        let moves = client.ask("GET moves").parse().unwrap_or(0);
                        assert!(moves >= last, "{moves} after {last}");
                        last = moves;
                    }
                    last
                })
            })
            .collect();
        let last: Vec<i64> = readers.into_iter().map(|reader| reader.join().unwrap()).collect();
        stop.store(true, SeqCst);
        assert!(last.iter().all(|last| *last > 0), "{last:?}");
    });
    // Own writes are read after they are waited for.
    let (mut writes, mut reads) = (one.client(), two.client());
    for number in 0..20 {
        assert_eq!(writes.ask(&format!("SET own {number}")), "OK");
        let id = writes.ask("HYADES.LAST");
        assert_eq!(reads.ask(&format!("HYADES.AFTER {id} 60000")), ":1");
        assert_eq!(reads.ask("GET own"), number.to_string());
    }
    let epoch: u64 = writes.ask("HYADES.LAST").split('.').next().unwrap().parse().unwrap();
    let began = Instant::now();
    assert_eq!(reads.ask(&format!("HYADES.AFTER {}.0.0 50", epoch + (1 << 30))), ":0");
    assert!(began.elapsed() >= Duration::from_millis(50));
    assert_eq!(writes.ask(&format!("HYADES.AFTER {epoch}.0.0")), ":1", "the primary has all");
    drop((setup, writes, reads));
    two.stop();
    one.stop();
}

/// A standby that joins again, and a standby whose role changes while it is read.
#[test]
fn standbys_come_and_go_under_readers() {
    let (one, mut two) = pair();
    assert_eq!(one.client().ask("DEBUG POPULATE 5000"), "OK");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for number in 0..4 {
            let (two, stop) = (two.server.as_ref().unwrap().address().unwrap(), &stop);
            scope.spawn(move || {
                let mut answers = 0;
                let connect = || {
                    let stream = TcpStream::connect(two).unwrap();
                    stream.set_read_timeout(Some(LONG)).unwrap();
                    Client(BufReader::new(stream))
                };
                let mut client = connect();
                while !stop.load(SeqCst) {
                    let said = match number {
                        0 => client.ask("KEYS *"),
                        1 => client.ask("DBSIZE"),
                        2 => client.ask("GET key:77"),
                        _ => client.ask("EVAL \"return redis.call('get','key:77')\" 0"),
                    };
                    match &said[..] {
                        "closed" => client = connect(),
                        "value:77" => answers += 1,
                        said if said.starts_with(':') || said.starts_with('[') => answers += 1,
                        "nil" => {}
                        said => assert!(said.starts_with("-LOADING"), "{said}"),
                    }
                }
                assert!(answers > 0, "reader {number}");
            });
        }
        for _ in 0..6 {
            two.step(Step::Joining);
            two.step(Step::Standby);
            std::thread::sleep(Duration::from_millis(30));
            two.step(Step::Candidate);
            two.step(Step::Standby);
            std::thread::sleep(Duration::from_millis(30));
        }
        stop.store(true, SeqCst);
    });
    two.ask_until("DBSIZE", |said| said == ":5000");
    two.stop();
    one.stop();
}
