//! Collections in blocks: the same commands on both forms, and the removal of blocks.

use super::*;
use crate::data::collections::{first_run, remove_garbage};
use crate::data::packed;
use hyades::{Column, Columns, Schema, Type};

pub const PACKS_NOTHING: &str = "CONFIG SET hash-max-listpack-entries 0 set-max-intset-entries 0 \
                             zset-max-listpack-entries 0 list-max-listpack-size 1\r\n";

/// The existing blocks, and the collections that are garbage.
fn blocks(house: &House) -> (usize, usize) {
    let opened = house.shared.store.opened.cloned();
    let (tables, snapshot) = (opened.tables, opened.database.open_snapshot());
    let (mut blocks, mut garbage) = (0, 0);
    snapshot.for_each(tables.blocks, Columns::of(&[0]), |_| blocks += 1).unwrap();
    snapshot.for_each(tables.garbage, Columns::ALL, |_| garbage += 1).unwrap();
    (blocks, garbage)
}

pub fn collect(house: &mut House) {
    let tables = house.shared.store.opened.cloned().tables;
    while remove_garbage(&mut house.session, tables).unwrap() {}
}

fn fill(house: &mut House, client: &mut Conversation, count: usize) {
    let all: String = (0..count)
        .map(|n| {
            format!(
                "HSET h field:{n} {n}\r\nSADD t member:{n}\r\nZADD z {n} member:{n}\r\n\
                 RPUSH l element:{n}\r\n"
            )
        })
        .collect();
    house.say(client, all.as_bytes());
}

/// Whatever removes a collection, none of its blocks stays, and no block of another collection
/// goes.
#[test]
fn what_is_taken_away_leaves_no_blocks() {
    let mut house = House::new(false);
    let mut client = house.client();
    let ways = [
        "DEL h t z l",
        "UNLINK h t z l",
        "MSET h 1 t 1 z 1 l 1",
        "RENAME h a\r\nRENAME t a\r\nRENAME z a\r\nRENAME l a\r\nDEL a",
        "COPY h t REPLACE\r\nCOPY h z REPLACE\r\nCOPY h l REPLACE\r\nDEL h t z l",
        "MOVE h 1\r\nMOVE t 1\r\nMOVE z 1\r\nMOVE l 1\r\nSELECT 1\r\nDEL h t z l\r\nSELECT 0",
        "SUNIONSTORE h none\r\nSUNIONSTORE t none\r\nZUNIONSTORE z 1 none\r\nLTRIM l 1 0",
        "SORT t BY nosort STORE h\r\nSORT t BY nosort STORE z\r\nSDIFFSTORE l t none",
        "SPOP t 5000\r\nZPOPMAX z 5000\r\nLPOP l 5000\r\nDEL h",
        "ZREMRANGEBYRANK z 0 -1\r\nZREMRANGEBYSCORE z -inf +inf\r\nDEL h t l",
        "PEXPIREAT h 1\r\nPEXPIREAT t 1\r\nEXPIRE z -1\r\nPEXPIREAT l 1",
        "MULTI\r\nDEL h\r\nHSET h a b\r\nDEL t z l h\r\nEXEC",
    ];
    for way in ways {
        fill(&mut house, &mut client, 300);
        let (before, _) = blocks(&house);
        assert!(before > 10, "{before}");
        assert_eq!(house.say(&mut client, b"HLEN h\r\nLLEN l\r\n"), ":300 :300 ");
        let said = house.say(&mut client, format!("{way}\r\nDEL h t z l\r\n").as_bytes());
        assert!(!said.contains("-ERR"), "{way}: {said}");
        assert!(blocks(&house).1 > 0, "{way}");
        collect(&mut house);
        assert_eq!(blocks(&house), (0, 0), "{way}");
    }
    assert_eq!(house.say(&mut client, b"DBSIZE\r\n"), ":0 ");
}

/// The server, started again.
pub fn reopened(house: House) -> House {
    let database = house.shared.store.opened.cloned().database.clone();
    let House { shared, session, queue, _dir: dir } = house;
    drop((shared, session, queue));
    database.close().unwrap();
    opened(dir.unwrap())
}

/// A server of the given directory.
pub fn opened(dir: TempDir) -> House {
    let mut builder = Database::builder().streams(2);
    let tables = Tables::declare(&mut builder);
    let database = builder.open(dir.path()).unwrap();
    let shared = Shared::new(Settings::default());
    let (session, queue) = (database.session().unwrap(), database.commit_queue());
    assert!(shared.store.opened.set(Opened { database, tables }).is_ok());
    House { shared, session, queue, _dir: Some(dir) }
}

/// The tables of all versions: of databases and of keys.
pub(super) fn first_tables() -> [Schema; 2] {
    let databases = Schema::new("dbs")
        .column("number", Type::U32)
        .column("generation", Type::U64)
        .primary_key(&["number"])
        .hash();
    let keys = Schema::new("keys")
        .column("generation", Type::U64)
        .column("key", Type::Bytes)
        .column("head", Type::U64)
        .column("body", Type::Bytes)
        .primary_key(&["generation", "key"])
        .hash();
    [databases, keys]
}

/// An earlier version had no blocks, and two tables. Its packed values are read unchanged, and move
/// into blocks with the first change.
#[test]
fn a_database_without_blocks_is_opened() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut builder = Database::builder().streams(2);
    let [databases, keys] = first_tables();
    let (_, keys) = (builder.table(databases), builder.table(keys));
    let database = builder.open(dir.path()).unwrap();
    let names: Vec<String> = (0..500).map(|n| format!("element:{n:03}")).collect();
    let scored: Vec<Vec<u8>> = names
        .iter()
        .map(|name| [&(1u64 << 63).to_be_bytes()[..], name.as_bytes()].concat())
        .collect();
    let plain = || packed::pack(names.iter().map(String::as_bytes));
    let values = [
        ("l", 1u64, plain()),
        ("t", 2, plain()),
        ("h", 3, plain()),
        ("z", 4, packed::pack(scored.iter().map(Vec::as_slice))),
    ];
    for (key, head, body) in &values {
        let row = [0u64.into(), key.as_bytes().into(), (*head).into(), body[..].into()];
        database.transact(|tx| Ok(tx.overwrite(keys, &row)?)).unwrap();
    }
    database.close().unwrap();
    let mut house = opened(dir);
    let mut client = house.client();
    let reads = b"LLEN l\r\nLINDEX l 7\r\nSCARD t\r\nHLEN h\r\nHGET h element:008\r\nZCARD z\r\n\
                  ZRANK z element:499\r\n";
    let said = ":500 $11 element:007 :500 :250 $11 element:009 :500 :499 ";
    assert_eq!(house.say(&mut client, reads), said);
    assert_eq!(blocks(&house).0, 0);
    let changes = b"RPUSH l x\r\nRPOP l\r\nSADD t x\r\nSREM t x\r\nHSET h x 1\r\nHDEL h x\r\n\
                    ZADD z 1 x\r\nZREM z x\r\n";
    assert_eq!(house.say(&mut client, changes), ":501 $1 x :1 :1 :1 :1 :1 :1 ");
    assert!(blocks(&house).0 > 10);
    assert_eq!(house.say(&mut client, reads), said);
}

/// The numbers of removed collections are not used again, though the server is started again.
#[test]
fn blocks_are_there_after_the_database_was_opened_again() {
    let mut house = House::new(false);
    let mut client = house.client();
    fill(&mut house, &mut client, 500);
    house.say(&mut client, b"COPY h copy\r\nDEL t\r\nHDEL h field:7\r\nLPUSH l first\r\n");
    drop(client);
    let mut house = reopened(house);
    let mut client = house.client();
    let said = house.say(
        &mut client,
        b"HLEN h\r\nHLEN copy\r\nHGET copy field:7\r\nLLEN l\r\nLINDEX l 250\r\n\
          ZRANK z member:333\r\nEXISTS t\r\n",
    );
    assert_eq!(said, ":499 :500 $1 7 :501 $11 element:249 :333 :0 ");
    assert_eq!(blocks(&house).1, 1);
    fill(&mut house, &mut client, 500);
    collect(&mut house);
    let said = house.say(&mut client, b"SCARD t\r\nSISMEMBER t member:499\r\nHLEN h\r\nLLEN l\r\n");
    assert_eq!(said, ":500 :1 :500 :1001 ");
}

/// The members that a scan returns, with a change between two calls.
fn scan(
    house: &mut House,
    client: &mut Conversation,
    command: &str,
    mut change: impl FnMut(&mut House, &mut Conversation),
) -> Vec<String> {
    let (mut cursor, mut found) = ("0".to_string(), Vec::new());
    loop {
        let said = house.say(client, format!("{command} {cursor} COUNT 7\r\n").as_bytes());
        let mut words = said.split(' ').filter(|word| !word.is_empty()).skip(2);
        cursor = words.next().unwrap().to_string();
        found.extend(words.filter(|word| word.contains(':')).map(str::to_string));
        if cursor == "0" {
            return found;
        }
        change(house, client);
    }
}

/// A member that is there throughout is returned exactly once, while blocks are divided and the key
/// is renamed.
#[test]
fn a_scan_returns_what_stays_exactly_once() {
    let mut house = House::new(false);
    let mut client = house.client();
    house.say(&mut client, PACKS_NOTHING.as_bytes());
    fill(&mut house, &mut client, 3_000);
    let kinds = [("HSCAN h", "field"), ("SSCAN t", "member"), ("ZSCAN z", "member")];
    for (command, name) in kinds {
        let mut round = 0;
        let change = |house: &mut House, client: &mut Conversation| {
            let (new, old) = (10_000 + 40 * round, 3 * round + 100);
            let all: String = (new..new + 40)
                .map(|n| {
                    format!("HSET h field:{n} 1\r\nSADD t member:{n}\r\nZADD z 1 member:{n}\r\n")
                })
                .collect();
            let gone = format!(
                "HDEL h field:{old}\r\nSREM t member:{old}\r\nZREM z member:{old}\r\n\
                 RENAME t other\r\nRENAME other t\r\nSUNIONSTORE t t none\r\n\
                 ZUNIONSTORE z 1 z WEIGHTS 0.9\r\n"
            );
            house.say(client, (all + &gone).as_bytes());
            round += 1;
        };
        let mut found = scan(&mut house, &mut client, command, change);
        assert!(round > 20, "{round} calls");
        let stayed = |word: &String| {
            let n: usize = word.strip_prefix(name).unwrap()[1..].parse().unwrap();
            n < 100
        };
        found.retain(stayed);
        found.sort();
        let mut expected: Vec<String> = (0..100).map(|n| format!("{name}:{n}")).collect();
        expected.sort();
        assert_eq!(found, expected, "{command}");
    }
}

/// A block as a torn read may find it: any bytes. The transaction meets a conflict or replies, and
/// does not panic.
fn any_reply(house: &mut House, client: &mut Conversation, line: &str) {
    client.feed(line.as_bytes());
    let (mut parked, session) = (Vec::new(), Some(&mut house.session));
    client.run(&mut Turn { shared: &house.shared, session, parked: &mut parked, snapshot: None });
    drop(parked);
}

const READS: &[&str] = &[
    "HGET h field:1",
    "HGETALL h",
    "HSCAN h 0",
    "HLEN h",
    "HRANDFIELD h 3",
    "SMEMBERS t",
    "SISMEMBER t member:1",
    "SRANDMEMBER t -9",
    "SSCAN t 77",
    "ZSCORE z member:1",
    "ZRANK z member:2",
    "ZRANGE z 3 9",
    "ZRANGE z 1 5 BYSCORE",
    "ZRANGE z - + BYLEX REV",
    "ZRANDMEMBER z",
    "ZCOUNT z 0 9",
    "LRANGE l 0 -1",
    "LINDEX l 30",
    "OBJECT ENCODING h",
    "HSET h field:1 1",
    "SADD t a b",
    "ZADD z 5 member:3",
    "ZREM z member:3",
    "RPUSH l a",
    "LSET l 30 a",
    "LINSERT l BEFORE element:30 b",
    "LPOP l 40",
    "LREM l 0 element:9",
    "ZPOPMIN z 30",
    "SPOP t 2",
    "COPY h x",
    "LTRIM l 5 9",
    "HINCRBY h field:2 1",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn any_block_is_read_or_refused(
        bodies in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..60), 0u32..9), 1..8),
        row: Vec<u8>,
        changes_row: bool,
    ) {
        let mut house = House::new(false);
        let mut client = house.client();
        house.say(&mut client, PACKS_NOTHING.as_bytes());
        fill(&mut house, &mut client, 40);
        let opened = house.shared.store.opened.cloned();
        let (tables, database) = (opened.tables, opened.database.clone());
        let (run, low) = (Column::<u64>::at(0), Column::<[u8]>::at(1));
        let mut places = Vec::new();
        let snapshot = database.open_snapshot();
        snapshot.for_each(tables.blocks, Columns::ALL, |row| {
            places.push((row.get(run), row.get(low).to_vec()));
        }).unwrap();
        drop(snapshot);
        prop_assert!(places.iter().any(|(run, _)| *run == first_run(1)));
        database.transact(|tx| {
            for ((run, low), (body, count)) in places.iter().zip(bodies.iter().cycle()) {
                let row = [(*run).into(), low[..].into(), (*count).into(), body[..].into()];
                tx.overwrite(tables.blocks, &row)?;
            }
            if changes_row {
                for key in ["h", "t", "z", "l"] {
                    let place = (0u64, key.as_bytes());
                    tx.update(tables.keys, place, &[Column::<[u8]>::at(3).set(&row[..])])?;
                }
            }
            Ok(())
        }).unwrap();
        for line in READS {
            let mut client = house.client();
            any_reply(&mut house, &mut client, &format!("{line}\r\n"));
        }
    }
}
