//! The log commands print a log, find damage, and change nothing.
#![allow(missing_docs, reason = "tests are named by what they promise")]

mod common;

use common::{code, lab, stderr, stdout};
use hyades_schemes::{GSN, PHYSIOLOGICAL, PLOVER, POPLAR, SILO_R, TAURUS_2016};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Creates a small log in two directories, closed cleanly.
fn small_log(root: &Path) -> [String; 2] {
    let dirs = ["a", "b"].map(|name| root.join(name).to_str().unwrap().to_string());
    let words = "bench bank --accounts 100 --streams 3 --record adaptive --seconds 0.1 --warmup 0 \
                 --reserve-memory 0 --workers 2";
    let output = lab(words, &["--log-dir", &dirs[0], "--log-dir", &dirs[1]]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    dirs
}

fn files(dir: &Path, into: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, into);
        } else {
            into.insert(path.clone(), std::fs::read(&path).unwrap());
        }
    }
}

#[test]
fn a_whole_log_is_described_and_not_changed() {
    let root = tempfile::tempdir().unwrap();
    let [a, b] = small_log(root.path());
    let (mut before, mut after) = (BTreeMap::new(), BTreeMap::new());
    files(root.path(), &mut before);

    let output = lab("log verify", &[&a, &b]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(stdout(&output).contains("whole: "), "{}", stdout(&output));

    let output = lab("log stat --json", &[&a, &b]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let stat: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    let run = &stat["incarnations"][1];
    assert_eq!((&run["protocol"], &run["clean"]), (&"taurus".into(), &true.into()));
    assert_eq!(run["streams"].as_array().unwrap().len(), 3);
    let (records, path) = (number(&run["records"]), number(&run["critical_path"]));
    assert!(records > 0 && (1..=records).contains(&path), "{run}");
    let kinds = &run["kinds"];
    let frames = number(&kinds["data"]["frames"]) + number(&kinds["command"]["frames"]);
    assert_eq!(frames, records + number(&run["dead"]));

    let output = lab("log dump", &[&a, &b]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let text = stdout(&output);
    assert!(text.contains("bank_populate version 1"), "{text}");
    let lines = |word| text.lines().filter(|line| line.contains(word)).count() as u64;
    assert_eq!(lines(" command "), number(&kinds["command"]["frames"]) + 1);
    assert_eq!(lines(" data    "), number(&kinds["data"]["frames"]));

    files(root.path(), &mut after);
    assert!(before == after, "reading a log changed it");
}

/// Changes a byte of a frame: in the first batch of a segment, behind the batch's header. Returns
/// the file and the offset.
fn flip_a_byte(root: &Path) -> (PathBuf, usize) {
    let mut all = BTreeMap::new();
    files(root, &mut all);
    let at = 4096 + 40 + 9;
    let (path, mut bytes) = all
        .into_iter()
        .rfind(|(path, bytes)| {
            let is_segment = path.to_str().unwrap().contains("segment-");
            is_segment && bytes.get(4096..4100) == Some(&b"HYB1"[..])
        })
        .expect("some stream was written to");
    bytes[at] ^= 4;
    std::fs::write(&path, bytes).unwrap();
    (path, at)
}

#[test]
fn a_flipped_byte_is_found_and_named() {
    let root = tempfile::tempdir().unwrap();
    let [a, b] = small_log(root.path());
    let (path, at) = flip_a_byte(root.path());
    for command in ["log verify", "log stat", "log dump"] {
        let output = lab(command, &[&a, &b]);
        assert_eq!(code(&output), 1, "{command}: {}", stdout(&output));
        let text = stderr(&output);
        assert!(text.contains(path.to_str().unwrap()), "{command}: {text}");
        let (_, rest) = text.split_once("at byte ").unwrap_or_else(|| panic!("{text}"));
        let offset: usize = rest.split(':').next().unwrap().parse().unwrap();
        assert!((4096 + 40..=at).contains(&offset), "{command}: {text}");
    }
}

/// As in `hyades-lab verify DIR | head`: the exit code is the code of the check, not of the output.
#[test]
fn damage_fails_though_the_report_is_not_read() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("log").to_str().unwrap().to_string();
    // A line for each stream of two incarnations: more than the buffer.
    let words = "bench bank --accounts 100 --streams 64 --segment 256KiB --buffer 64KiB \
                 --workers 2 --seconds 0.1 --warmup 0 --reserve-memory 0 --log-dir";
    let output = lab(words, &[&dir]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let verify = || {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = Command::new(env!("CARGO_BIN_EXE_hyades-lab"));
        command.args(["verify", &dir]).stdout(writer).output().unwrap()
    };
    assert!(stdout(&lab("verify", &[&dir])).len() > 8192, "it fits the buffer");
    let output = verify();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    flip_a_byte(root.path());
    let output = verify();
    assert_eq!(code(&output), 1, "{}", stderr(&output));
    assert!(stderr(&output).contains("damaged"), "{}", stderr(&output));
}

#[test]
fn a_log_in_use_or_none_at_all_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let [a, b] = small_log(root.path());
    let dirs = vec![PathBuf::from(&a), PathBuf::from(&b)];
    let held = hyades_wal::open(hyades_wal::LogOptions::new(dirs, 1)).unwrap();
    let output = lab("log verify", &[&a, &b]);
    assert_eq!(code(&output), 1);
    assert!(stderr(&output).contains("in use"), "{}", stderr(&output));
    drop(held);

    let output = lab("log stat", &[&a]);
    assert_eq!(code(&output), 1);
    assert!(stderr(&output).contains(&b), "the missing directory is named: {}", stderr(&output));
    let output = lab("log dump", &[root.path().to_str().unwrap()]);
    assert_eq!(code(&output), 2);
    let absent = root.path().join("absent");
    let output = lab("log dump", &[absent.to_str().unwrap()]);
    assert_eq!(code(&output), 2);
    assert!(!absent.exists());
}

/// Creates a log with a transaction that read another transaction's row. The stream of the writer
/// was not flushed before the power cut.
fn reader_without_its_writer(dir: &Path, protocol: hyades::Protocol) {
    use hyades::{Abort, Database, Schema, Table, Type};
    use hyades_platform::device::{PowerCutDevice, PowerCutOptions};
    use std::sync::Arc;
    let rows = Table::nth(0);
    let options = PowerCutOptions { seed: 1, early_sectors: 0.0, lying_sync: false };
    let device = PowerCutDevice::new(options);
    let mut builder = Database::builder().protocol(protocol).streams(2).log_settings(|log| {
        log.device = Some(Arc::new(device.clone()));
        log.research.stepped = true;
    });
    let schema = Schema::new("rows").column("id", Type::I64).column("n", Type::I64);
    builder.table(schema.primary_key(&["id"]));
    let db = builder.open(dir).unwrap();
    let log = db.log().unwrap();
    // A session uses the stream with the least to flush, so the two sessions use different streams.
    let mut sessions = [0i64, 1].map(|id| {
        let mut session = db.session().unwrap();
        session.try_submit(|tx| tx.overwrite(rows, &[id.into(), 0i64.into()])).unwrap().0.unwrap();
        session
    });
    log.flush().unwrap();
    sessions[0]
        .try_submit(|tx| tx.overwrite(rows, &[7i64.into(), 1i64.into()]))
        .unwrap()
        .0
        .unwrap();
    let reads = sessions[1].try_submit(|tx| {
        let there = tx.get(rows, 7i64)?.is_some();
        tx.insert(rows, &[8i64.into(), i64::from(there).into()])?;
        Ok::<_, Abort>(())
    });
    reads.unwrap().0.unwrap();
    let begun = log.frontier().durable(1);
    while log.frontier().durable(1) < log.next_lsn(1) {
        log.step(1);
    }
    assert!(log.frontier().durable(1) > begun);
    device.cut();
}

#[test]
fn a_dead_record_is_said_to_be_dead_under_every_protocol() {
    use hyades::Protocol;
    for protocol in [Protocol::Taurus, TAURUS_2016, SILO_R, GSN, POPLAR] {
        let root = tempfile::tempdir().unwrap();
        reader_without_its_writer(root.path(), protocol);
        let dir = root.path().to_str().unwrap();
        let output = lab("log stat --json", &[dir]);
        assert_eq!(code(&output), 0, "{protocol:?}: {}", stderr(&output));
        let stat: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
        let run = &stat["incarnations"][0];
        assert_eq!((&run["records"], &run["dead"]), (&2.into(), &1.into()), "{protocol:?}: {run}");
        let output = lab("log dump", &[dir]);
        let text = stdout(&output);
        let dead: Vec<&str> = text.lines().filter(|line| line.contains(" DEAD")).collect();
        assert_eq!(dead.len(), 1, "{protocol:?}: {text}");
        if protocol == POPLAR {
            assert!(dead[0].contains("number ") && dead[0].contains(", has read;"), "{text}");
            assert!(text.contains(", has not read;"), "{text}");
        }
        // A dead record is the result of a crash, and not damage.
        let output = lab("verify", &[dir]);
        assert_eq!(code(&output), 0, "{protocol:?}: {}", stdout(&output));
        assert!(stdout(&output).contains("1 of the transactions depend"), "{}", stdout(&output));
    }
}

#[test]
fn the_log_of_a_transaction_component_is_verified_and_printed() {
    for way in ["at-commit", "at-once"] {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().to_str().unwrap();
        let words = format!(
            "bench ycsb --engine deuteronomy --rows 50 --seconds 0.1 --warmup 0 --streams 2 \
             --reserve-memory 0 --workers 2 --value-bytes 7 --log-updates {way} --log-dir"
        );
        let output = lab(&words, &[dir]);
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        let output = lab("verify", &[dir]);
        assert_eq!(code(&output), 0, "{}{}", stdout(&output), stderr(&output));
        assert!(stdout(&output).contains("data of the log is missing"), "{}", stdout(&output));
        assert!(stdout(&output).contains("were not read"), "{}", stdout(&output));
        let output = lab("log dump --limit 200", &[dir]);
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        let text = stdout(&output);
        assert!(text.contains("incarnation 1: deuteronomy, data records only"), "{text}");
        assert!(text.contains(" put key0000000000007 (7 B)") && !text.contains("DEAD"), "{text}");
        assert_eq!(text.contains("part       of a record"), way == "at-once", "{text}");
        let output = lab("log stat --json", &[dir]);
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        let stat: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
        let run = stat["incarnations"].as_array().unwrap().last().unwrap();
        assert!(number(&run["records"]) > 0 && run["dead"] == 0, "{run}");
        let tables = run["contents"]["tables"].as_array().unwrap();
        let table = |name: &str| tables.iter().find(|table| table["name"] == name);
        assert!(number(&table("(put)").unwrap()["changes"]) > 0, "{run}");
        assert_accounted(run);
    }
}

#[test]
fn the_engine_refuses_the_directory_of_a_transaction_component() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("component");
    let dir = dir.to_str().unwrap();
    let words = "bench ycsb --engine deuteronomy --dc redb --rows 50 --seconds 0.1 --warmup 0 \
                 --reserve-memory 0 --workers 2 --log-dir";
    assert_eq!(code(&lab(words, &[dir])), 0);
    let manifest = std::fs::read(format!("{dir}/MANIFEST")).unwrap();
    let out = root.path().join("out");
    let out = out.to_str().unwrap();
    // As opened by a server, or any program.
    let refused = hyades::Database::builder().open(dir).err().unwrap().to_string();
    assert!(refused.contains("protocol \"deuteronomy\""), "{refused}");
    let of_engine = ["protocol \"deuteronomy\"", "the crate"];
    let without_data = ["belongs to a transaction component", "--data KIND:PATH"];
    for (words, places, why) in [
        ("backup", vec![dir, "--out", out], without_data),
        ("recover", vec![dir, "--out", out], without_data),
        ("recover --salvage", vec![dir, "--out", out], of_engine),
        ("checkpoint", vec![dir], of_engine),
    ] {
        let output = lab(words, &places);
        assert_ne!(code(&output), 0, "{words}: {}", stdout(&output));
        let text = stderr(&output);
        assert!(why.iter().all(|why| text.contains(why)), "{words}: {text}");
        let now = std::fs::read(format!("{dir}/MANIFEST")).unwrap();
        assert_eq!(now, manifest, "{words} has changed something");
    }
}

fn number(value: &serde_json::Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// Every byte of transactions' frames is about something.
fn assert_accounted(incarnation: &serde_json::Value) {
    let contents = &incarnation["contents"];
    let sum = |key: &str| -> u64 {
        contents[key].as_array().unwrap().iter().map(|one| number(&one["bytes"])).sum()
    };
    let shares = sum("procedures") + sum("tables") + number(&contents["before_image_bytes"]);
    let kinds = &incarnation["kinds"];
    let frames: u64 =
        ["data", "command", "part"].iter().map(|kind| number(&kinds[kind]["bytes"])).sum();
    assert_eq!(shares + number(&contents["overhead_bytes"]), frames, "{incarnation}");
}

#[test]
fn bytes_are_told_by_procedure_and_by_table() {
    let root = tempfile::tempdir().unwrap();
    let [a, b] = small_log(root.path());
    let output = lab("log stat --json", &[&a, &b]);
    let stat: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    let incarnations = stat["incarnations"].as_array().unwrap();
    incarnations.iter().for_each(assert_accounted);
    let commands: u64 = incarnations.iter().map(|i| number(&i["kinds"]["command"]["frames"])).sum();
    let calls = |incarnation: &serde_json::Value| -> u64 {
        let procedures = incarnation["contents"]["procedures"].as_array().unwrap();
        procedures.iter().map(|procedure| number(&procedure["calls"])).sum()
    };
    assert_eq!(incarnations.iter().map(calls).sum::<u64>(), commands, "{stat}");
    let text = stdout(&lab("log stat", &[&a, &b]));
    assert!(text.contains(" calls of bank_populate version 1, "), "{text}");
    assert!(text.contains("  heads, checksums and stamps of these"), "{text}");
}

/// Creates a log with a transaction whose changes fit no frame, and a transaction with many rows.
fn log_with_parts(dir: &Path, protocol: hyades::Protocol) {
    use hyades::{Database, Schema, Table, Type, Value};
    let rows = Table::nth(0);
    let one = [hyades::Protocol::Serial, PHYSIOLOGICAL];
    let streams = if one.contains(&protocol) { 1 } else { 2 };
    let mut builder = Database::builder().protocol(protocol).streams(streams);
    builder = builder.log_settings(|log| log.buffer_bytes = 16 << 10);
    let schema = Schema::new("rows").column("id", Type::I64).column("bytes", Type::Bytes);
    builder.table(schema.primary_key(&["id"]));
    let db = builder.open(dir).unwrap();
    let long = vec![7; 3000];
    let written = db.transact(|tx| {
        for id in 0..16i64 {
            tx.overwrite(rows, &[id.into(), Value::Bytes(&long)])?;
        }
        Ok(())
    });
    written.unwrap();
    let changed = db.transact(|tx| Ok(tx.overwrite(rows, &[1i64.into(), Value::Bytes(&[1])])?));
    changed.unwrap();
    db.close().unwrap();
}

#[test]
fn the_parts_of_a_transaction_are_told_under_every_protocol() {
    use hyades::Protocol;
    let logged = |p: &Protocol| *p != Protocol::None && p.takes_data();
    for protocol in hyades_schemes::all_protocols().filter(logged) {
        let root = tempfile::tempdir().unwrap();
        log_with_parts(root.path(), protocol);
        let dir = root.path().to_str().unwrap();
        let output = lab("log stat --json", &[dir]);
        assert_eq!(code(&output), 0, "{protocol:?}: {}", stderr(&output));
        let stat: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
        let run = &stat["incarnations"][0];
        assert_accounted(run);
        let contents = &run["contents"];
        assert_eq!((&run["records"], &run["dead"]), (&2.into(), &0.into()), "{protocol:?}: {run}");
        assert_eq!(contents["tables"][0]["changes"], 17, "{protocol:?}: {run}");
        assert!(number(&contents["with_parts"]) >= 1, "{protocol:?}: {run}");
        assert_eq!(contents["unfinished"], 0, "{protocol:?}: {run}");
        let several = number(&contents["in_several_streams"]);
        assert_eq!(several, u64::from(protocol == PLOVER), "{protocol:?}: {run}");
        let before = number(&contents["before_image_bytes"]);
        assert_eq!(before > 0, protocol == PHYSIOLOGICAL, "{protocol:?}: {run}");
        let text = stdout(&lab("log dump", &[dir]));
        assert!(text.contains("part       the first of a transaction;"), "{protocol:?}: {text}");
        assert!(text.contains("of the transaction that begins at "), "{protocol:?}: {text}");
        assert!(text.contains(" begins at "), "{protocol:?}: {text}");
        let further = |stream: &serde_json::Value| number(&stream["further_records"]);
        let further: u64 = run["streams"].as_array().unwrap().iter().map(further).sum();
        assert_eq!(further, several, "{protocol:?}: {run}");
        if protocol == PLOVER {
            let text = stdout(&lab("log stat", &[dir]));
            assert!(text.contains(" transactions, records of 1 counted elsewhere;"), "{text}");
        }
        if protocol == PLOVER {
            assert!(text.contains(" first of the records in components 0 1;"), "{text}");
        }
        let output = lab("verify", &[dir]);
        assert_eq!(code(&output), 0, "{protocol:?}: {}", stdout(&output));
        assert!(!stdout(&output).contains("without a record"), "{}", stdout(&output));
    }
}

/// Commands name the rows inserted without a key.
#[test]
fn numbers_of_rows_are_told_with_the_call_that_inserted_them() {
    use hyades::{Database, Protocol, RecordKind, Schema, Table, Transaction, Type, Value};
    let notes = Table::nth(0);
    let root = tempfile::tempdir().unwrap();
    let mut builder = Database::builder().protocol(Protocol::Taurus).record(RecordKind::Command);
    builder.table(Schema::new("notes").column("text", Type::Bytes));
    let write = builder.procedure("write", 1, move |tx: &Transaction<'_>, n: i64| {
        (0..n).try_for_each(|_| tx.insert(notes, &[Value::Bytes(&[7])]).map(drop))
    });
    let db = builder.open(root.path()).unwrap();
    db.session().unwrap().call(write, &100i64).unwrap().0.unwrap();
    db.close().unwrap();
    let dir = root.path().to_str().unwrap();
    let output = lab("log stat --json", &[dir]);
    let stat: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    let run = &stat["incarnations"][0];
    assert_accounted(run);
    let contents = &run["contents"];
    assert!(number(&contents["procedures"][0]["bytes"]) > 100, "{run}");
    assert!(number(&contents["overhead_bytes"]) < 60, "{run}");
    let text = stdout(&lab("log dump", &[dir]));
    assert!(text.contains(" 100 row numbers from 1; outcome 0x"), "{text}");
}
