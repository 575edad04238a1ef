//! SCAN and RANDOMKEY, which take steps of a bounded size over the table of all keys.

use super::*;
use std::collections::{HashMap, HashSet};

/// A call of SCAN: the next cursor, and the keys.
fn scan(house: &mut House, client: &mut Conversation, command: &str) -> (String, Vec<String>) {
    let said = house.say(client, format!("{command}\r\n").as_bytes());
    let words: Vec<&str> = said.split_whitespace().collect();
    assert_eq!(words[0], "*2", "{said}");
    let keys = words[4..].iter().skip(1).step_by(2).map(|key| key.to_string());
    (words[2].to_string(), keys.collect())
}

fn fill(house: &mut House, client: &mut Conversation, keys: impl Iterator<Item = u32>) {
    for some in keys.collect::<Vec<_>>().chunks(500) {
        let pairs: String = some.iter().map(|n| format!(" key:{n} {n}")).collect();
        assert_eq!(house.say(client, format!("MSET{pairs}\r\n").as_bytes()), "+OK ");
    }
}

/// Against a model: keys that stay from the first call to the last are returned once, and no absent
/// key is returned, while keys are added and removed, in databases of all sizes.
#[test]
fn what_stays_is_returned_once_while_keys_come_and_go() {
    for seed in 0..6 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut house = House::new(false);
        let (mut client, mut other) = (house.client(), house.client());
        // A neighbouring database, outside of the scan.
        house.say(&mut other, b"SELECT 5\r\n");
        fill(&mut house, &mut other, 0..random.u32(0..4_000));
        let stays = random.u32(0..3_000);
        fill(&mut house, &mut client, 0..stays);
        let (mut cursor, mut found) = ("0".to_string(), HashMap::new());
        let (mut next, mut others) = (stays, Vec::new());
        let mut ever: HashSet<String> = (0..stays).map(|n| format!("key:{n}")).collect();
        loop {
            let count = random.u32(1..200);
            let (then, keys) =
                scan(&mut house, &mut client, &format!("SCAN {cursor} COUNT {count}"));
            assert!(keys.len() < count as usize + 40, "{} of {count}", keys.len());
            for key in keys {
                assert!(ever.contains(&key), "{key}");
                *found.entry(key).or_insert(0) += 1;
            }
            if then == "0" {
                break;
            }
            assert!(then.parse::<u64>().unwrap() < 1 << 53);
            cursor = then;
            let new = next..next + random.u32(0..60);
            ever.extend(new.clone().map(|n| format!("key:{n}")));
            fill(&mut house, &mut client, new.clone());
            others.extend(new.clone());
            next = new.end;
            for _ in 0..random.usize(0..30).min(others.len()) {
                let gone = others.swap_remove(random.usize(0..others.len()));
                house.say(&mut client, format!("DEL key:{gone}\r\n").as_bytes());
            }
            // A rewritten key, in whatever form, stays.
            if stays > 0 {
                let n = random.u32(0..stays);
                let text =
                    format!("DEL x\r\nSET key:{n} {}\r\nEXPIRE key:{n} 1000\r\n", "y".repeat(500));
                house.say(&mut client, text.as_bytes());
            }
        }
        assert!(found.values().all(|times| *times == 1), "seed {seed}");
        assert!((0..stays).all(|n| found.contains_key(&format!("key:{n}"))), "seed {seed}");
    }
}

/// A call returns about the requested number of keys, however many keys there are here or
/// elsewhere.
#[test]
fn a_call_returns_no_share_of_all_keys() {
    let mut house = House::new(false);
    let (mut client, mut small) = (house.client(), house.client());
    fill(&mut house, &mut client, 0..20_000);
    let (cursor, keys) = scan(&mut house, &mut client, "SCAN 0");
    assert!(cursor != "0" && (10..40).contains(&keys.len()), "{}", keys.len());
    // As many as a loop should look at, whatever the requested number.
    let (cursor, keys) = scan(&mut house, &mut client, "SCAN 0 COUNT 1000000000");
    assert!(cursor != "0" && (10_000..10_040).contains(&keys.len()), "{}", keys.len());
    // A few keys of another database take more than one call, and not many.
    house.say(&mut small, b"SELECT 1\r\n");
    fill(&mut house, &mut small, 0..5);
    let (mut cursor, mut calls, mut found) = ("0".to_string(), 0, Vec::new());
    loop {
        let (then, keys) = scan(&mut house, &mut small, &format!("SCAN {cursor}"));
        found.extend(keys);
        calls += 1;
        cursor = then;
        if cursor == "0" {
            break;
        }
    }
    found.sort();
    assert_eq!(found, ["key:0", "key:1", "key:2", "key:3", "key:4"]);
    assert!((2..10).contains(&calls), "{calls} calls");
    // An empty database is no exception; nor are numbers never returned by a call.
    house.say(&mut small, b"SELECT 2\r\n");
    assert_eq!(scan(&mut house, &mut small, "SCAN 4503599627370495").0, "0");
    assert_eq!(scan(&mut house, &mut small, "SCAN 9223372036854775807"), ("0".into(), vec![]));
    assert_eq!(
        house.say(&mut small, b"SCAN x\r\nSCAN -1\r\n"),
        "-ERR invalid cursor -ERR invalid cursor "
    );
}

#[test]
fn random_keys_are_those_of_the_database_and_each_comes() {
    fastrand::seed(1);
    let mut house = House::new(false);
    let (mut client, mut small) = (house.client(), house.client());
    assert_eq!(house.say(&mut client, b"RANDOMKEY\r\n"), "$-1 ");
    fill(&mut house, &mut client, 0..50);
    house.say(&mut small, b"SELECT 1\r\nSET gone 1 PX 1\r\nSET left 1\r\n");
    std::thread::sleep(std::time::Duration::from_millis(5));
    // RANDOMKEY draws from the generator of the test's thread.
    fastrand::seed(1);
    let mut seen = HashMap::new();
    for _ in 0..2_000 {
        *seen.entry(house.say(&mut client, b"RANDOMKEY\r\n")).or_insert(0) += 1;
        assert_eq!(house.say(&mut small, b"RANDOMKEY\r\n"), "$4 left ");
    }
    // 40 times each, if all keys were alike.
    assert_eq!(seen.len(), 50);
    assert!(seen.values().all(|times| (4..400).contains(times)), "{seen:?}");
    // The count does not know yet of the key's expiry, so a search begins at random.
    house.say(&mut small, b"DEL left\r\n");
    for _ in 0..200 {
        assert_eq!(house.say(&mut small, b"RANDOMKEY\r\n"), "$-1 ");
    }
}

/// Keys are counted after the commit that adds them: a transaction that removes a key meanwhile
/// finds a smaller count than it removes.
#[test]
fn no_number_of_keys_is_below_zero() {
    let mut house = House::new(false);
    let mut client = house.client();
    let opened = house.shared.store.opened.cloned();
    let (keys, database) = (opened.tables.keys, opened.database.clone());
    let row = [0u64.into(), b"a"[..].into(), 0u64.into(), b"1"[..].into()];
    database.transact(|tx| Ok(tx.overwrite(keys, &row)?)).unwrap();
    let said = house.say(&mut client, b"MULTI\r\nDEL a\r\nDBSIZE\r\nRANDOMKEY\r\nEXEC\r\n");
    assert_eq!(said, "+OK +QUEUED +QUEUED +QUEUED *3 :1 :0 $-1 ");
    assert_eq!(house.say(&mut client, b"DBSIZE\r\n"), ":0 ");
}

/// Found keys wait for the disk, like all reads.
#[test]
fn what_is_found_is_on_disk_when_it_is_told() {
    let mut house = House::new(true);
    let (mut writer, mut reader) = (house.client(), house.client());
    writer.feed(b"SET a 1\r\n");
    house.run(&mut writer, 0);
    reader.feed(b"SCAN 0\r\n");
    house.run(&mut reader, 1);
    let drain = |house: &mut House, reader: &mut Conversation| {
        let acknowledge = |(number, mark)| {
            if number == 1 {
                reader.acknowledged(mark)
            }
        };
        house.queue.drain(acknowledge).unwrap();
    };
    drain(&mut house, &mut reader);
    assert!(reader.output().is_empty(), "the key is not on disk");
    house.write_log();
    drain(&mut house, &mut reader);
    assert_eq!(reader.output(), b"*2\r\n$1\r\n0\r\n*1\r\n$1\r\na\r\n");
}

#[test]
fn a_scan_returns_each_key_once_whatever_the_count() {
    let mut house = House::new(false);
    let mut client = house.client();
    for n in 0..200 {
        house.say(&mut client, format!("SET key:{n} {n}\r\n").as_bytes());
    }
    for count in [1, 7, 1000] {
        let (mut cursor, mut found) = ("0".to_string(), Vec::new());
        loop {
            let said =
                house.say(&mut client, format!("SCAN {cursor} COUNT {count}\r\n").as_bytes());
            let words: Vec<&str> = said.split_whitespace().collect();
            cursor = words[2].to_string();
            found.extend(words[4..].iter().skip(1).step_by(2).map(|key| key.to_string()));
            if cursor == "0" {
                break;
            }
        }
        found.sort();
        let unique = found.len();
        found.dedup();
        assert_eq!((found.len(), unique), (200, 200), "count {count}");
    }
}
