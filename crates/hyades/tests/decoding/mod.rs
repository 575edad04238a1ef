//! Runs the decoders of everything on disk on arbitrary bytes: one function for each kind of input,
//! none of which may panic. `cargo fuzz` calls the functions with generated inputs, `decoders.rs`
//! with kept inputs and with random changes of valid inputs.
#![allow(dead_code, missing_docs, reason = "each user takes its part")]

use hyades::inspect::Inspector;
use hyades::{
    Abort, Builder, Database, RecordKind, Schema, Table, Transaction, Type, Value, fuzzing,
};
use hyades_platform::device::MemoryDevice;
use hyades_wal::{FrameKind, IncarnationSettings, LogOptions, Manifest, open};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A kind of input: its name, the function that decodes it, and valid inputs to start from.
pub struct Target {
    pub name: &'static str,
    pub run: fn(&[u8]),
    pub seeds: fn() -> Vec<Vec<u8>>,
}

pub const TARGETS: [Target; 7] = [
    Target { name: "pieces", run: pieces, seeds: piece_seeds },
    Target { name: "manifest", run: manifest, seeds: manifest_seeds },
    Target { name: "stream", run: stream, seeds: stream_seeds },
    Target { name: "catalogue", run: catalogue, seeds: catalogue_seeds },
    Target { name: "row", run: row, seeds: row_seeds },
    Target { name: "record", run: record, seeds: record_seeds },
    Target { name: "replay", run: replay, seeds: record_seeds },
];

pub use hyades_wal::fuzzing::{manifest, pieces};

const MIXED: Table = Table::nth(0);
const PLAIN: Table = Table::nth(1);

fn schemas() -> [Schema; 3] {
    let mixed = Schema::new("mixed")
        .column("id", Type::I64)
        .column("name", Type::Text)
        .nullable("note", Type::Text)
        .nullable("bytes", Type::Bytes)
        .nullable("number", Type::F64)
        .column("small", Type::I32)
        .column("yes", Type::Bool)
        .column("code", Type::Fixed(3))
        .primary_key(&["name", "id"])
        .index("by_note", &["note", "small"])
        .unique("by_code", &["code", "number"]);
    let plain = Schema::new("plain").column("what", Type::U32).column("text", Type::Bytes);
    let hashed = Schema::new("hashed").column("id", Type::U64).column("n", Type::U64);
    [mixed, plain, hashed.primary_key(&["id"]).hash()]
}

fn change(tx: &Transaction<'_>, (id, name): (i64, String)) -> Result<u32, Abort> {
    let code = [id as u8; 3];
    let row = [
        id.into(),
        name[..].into(),
        Value::Null,
        Value::Bytes(&[1, 2]),
        1.5.into(),
        7.into(),
        true.into(),
        (&code).into(),
    ];
    tx.upsert(MIXED, &row)?;
    tx.insert(PLAIN, &[7u32.into(), Value::Bytes(&[3; 5])])?;
    tx.insert(Table::nth(2), &[(id as u64).into(), tx.random().into()])?;
    Ok(1)
}

fn builder(record: RecordKind) -> Builder {
    let mut builder = Database::builder().streams(2).record(record).recovery_threads(1);
    builder = builder.log_settings(|log| {
        log.device = Some(MemoryDevice::shared());
        log.buffer_bytes = 1 << 16;
        log.segment_bytes = 1 << 18;
    });
    for schema in schemas() {
        builder.table(schema);
    }
    builder.procedure("change", 1, change);
    builder
}

fn memory() -> tempfile::TempDir {
    tempfile::tempdir_in(MemoryDevice::ROOT).unwrap()
}

fn options(dir: &Path) -> LogOptions {
    let mut options = LogOptions::new(vec![dir.to_owned()], 2);
    options.device = MemoryDevice::shared();
    options.buffer_bytes = 1 << 16;
    options.segment_bytes = 16 << 10;
    options.block_bytes = 1024;
    options
}

type Payloads = Vec<(FrameKind, Vec<u8>)>;

/// The manifest of a database after some transactions, and the payloads of its frames.
fn sample() -> &'static (Manifest, Payloads) {
    static SAMPLE: OnceLock<(Manifest, Payloads)> = OnceLock::new();
    SAMPLE.get_or_init(|| {
        let dir = memory();
        let db = builder(RecordKind::Adaptive).open(dir.path()).unwrap();
        let call = db.prepare("change").unwrap();
        let mut session = db.session().unwrap();
        for (id, record) in (0..6).zip([RecordKind::Command, RecordKind::Data].into_iter().cycle())
        {
            let name = "n".repeat(id as usize);
            let (_, ticket) = session.call_recorded(call, &(id, name), record).unwrap();
            ticket.wait().unwrap();
        }
        let changes = |tx: &Transaction<'_>| {
            let small = hyades::Column::<i32>::at(5);
            let note = hyades::Column::<Option<&str>>::at(2);
            let key = [Value::Text("n"), 1i64.into()];
            tx.update(MIXED, &key[..], &[small.set(9), note.set("a note")])?;
            tx.delete(MIXED, &[Value::Text("nn"), 2i64.into()][..])?;
            Ok::<_, Abort>(())
        };
        session.try_submit(changes).unwrap().0.unwrap();
        drop(session);
        db.close().unwrap();
        let recovering = open(options(dir.path())).unwrap();
        let mut payloads = Vec::new();
        for mut reader in recovering.readers() {
            while let Some(chunk) = reader.next_chunk().unwrap() {
                payloads.extend(chunk.frames().map(|f| (f.kind, f.payload.to_vec())));
            }
        }
        (recovering.manifest().clone(), payloads)
    })
}

/// Reads a log whose first segment is the input. The first byte selects whether checksums are
/// repaired and whether the reader skips to a position.
pub fn stream(input: &[u8]) {
    static LOG: OnceLock<(tempfile::TempDir, PathBuf, Manifest)> = OnceLock::new();
    let (dir, segment, manifest) = LOG.get_or_init(|| {
        let (dir, manifest, segment) = small_log();
        (dir, segment, manifest)
    });
    let Some((how, bytes)) = input.split_first() else { return };
    let mut bytes = bytes.to_vec();
    bytes.truncate(16 << 10);
    if how & 1 == 0 {
        hyades_wal::fuzzing::fix_segment_checksums(
            &mut bytes,
            &manifest.uuid(),
            hyades_wal::StreamId(0),
            1,
        );
    }
    fs::write(segment, &bytes).unwrap();
    let Ok(recovering) = open(options(dir.path())) else { return };
    let mut ends = Vec::new();
    for mut reader in recovering.readers() {
        if how & 2 != 0 {
            reader.skip_to(u64::from(how >> 2));
        }
        while let Ok(Some(chunk)) = reader.next_chunk() {
            let end = chunk.frames().last().map(|frame| frame.end);
            assert_eq!(end, Some(chunk.end()), "a chunk is whole frames");
        }
        ends.push(reader.end());
    }
    if let Err(error) = recovering.verdict(&ends) {
        assert!(error.to_string().contains("Lsn"), "{error}");
    }
}

/// Creates a log whose newest incarnation has no recorded end. Returns the log with its first
/// segment.
fn small_log() -> (tempfile::TempDir, Manifest, PathBuf) {
    let dir = memory();
    let recovering = open(options(dir.path())).unwrap();
    let verdict = recovering.verdict(&[]).unwrap();
    let log = recovering.start(IncarnationSettings::default(), &verdict, 1).unwrap();
    let mut writer = log.writer().unwrap();
    for n in 0..5u8 {
        let reservation = writer.reserve(0, usize::from(n) * 40);
        let end = reservation.end();
        reservation.fill(FrameKind::Record, &vec![n; usize::from(n) * 40]);
        log.frontier().wait(hyades_wal::Lane::position(0), end).unwrap();
        if n == 2 {
            writer.append_anchor(0, &[end, 0]);
            // Of mark 3, before anything was durable.
            let heartbeat = [3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            writer.reserve(0, heartbeat.len()).fill(FrameKind::Heartbeat, &heartbeat);
        }
    }
    log.flush().unwrap();
    drop((writer, log));
    let recovering = open(options(dir.path())).unwrap();
    let manifest = recovering.manifest().clone();
    let segment = dir.path().join("stream-0000").join(format!("segment-{:020}", 1));
    assert!(segment.exists());
    (dir, manifest, segment)
}

/// Reads the input as a catalogue, by itself and with the inspector.
pub fn catalogue(input: &[u8]) {
    fuzzing::catalogue(input);
    let mut manifest = sample().0.clone();
    manifest.catalogue = input.to_vec();
    if let Ok(inspector) = Inspector::new(&manifest) {
        let mut stream = inspector.stream(manifest.newest().unwrap(), 0);
        for (kind, payload) in &sample().1 {
            let end = payload.len() as u64 + 10;
            let frame = hyades_wal::Frame { start: 0, end, kind: *kind, payload };
            if let Ok(Some(record)) = stream.read(&frame) {
                let _ = record.content();
            }
        }
    }
}

pub fn row(input: &[u8]) {
    let Some((which, bytes)) = input.split_first() else { return };
    fuzzing::row(&schemas()[usize::from(*which) % 3], bytes);
}

/// Splits an input into frames: one byte for kind and stream, two for the length, then the payload.
fn frames(mut input: &[u8]) -> Vec<(FrameKind, usize, &[u8])> {
    let kinds = [
        FrameKind::Record,
        FrameKind::Record,
        FrameKind::Part,
        FrameKind::Anchor,
        FrameKind::Heartbeat,
    ];
    let mut out = Vec::new();
    while let Some((&[what, low, high], rest)) = input.split_first_chunk() {
        let length = usize::from(u16::from_le_bytes([low, high])).min(rest.len()).min(4000);
        let (payload, rest) = rest.split_at(length);
        out.push((kinds[usize::from(what >> 1) % kinds.len()], usize::from(what & 1), payload));
        input = rest;
    }
    out
}

/// Writes the input's frames to a valid log.
fn write(dir: &Path, input: &[u8], settings: IncarnationSettings) {
    let recovering = open(options(dir)).unwrap();
    let verdict = recovering.verdict(&[]).unwrap();
    let log = recovering.start(settings, &verdict, 1).unwrap();
    let mut writer = log.writer().unwrap();
    for (kind, stream, payload) in frames(input) {
        writer.wait_for_room(stream);
        writer.reserve(stream, payload.len()).fill(kind, payload);
    }
    drop(writer);
    log.close().unwrap();
}

/// Settings of the incarnation, from the first byte of an input. The settings determine the record
/// format.
fn settings(how: u8) -> IncarnationSettings {
    let vectors = match how & 5 {
        0 => "yes",
        4 => "predecessors",
        _ => "no",
    };
    IncarnationSettings {
        catalogue: sample().0.catalogue.clone(),
        data_only: how & 2 != 0,
        protocol: if how & 1 == 0 { "taurus" } else { "serial" }.to_string(),
        settings: BTreeMap::from([("vectors".to_string(), vectors.to_string())]),
    }
}

/// Decodes the records in the input's frames.
pub fn record(input: &[u8]) {
    let Some((how, input)) = input.split_first() else { return };
    let (mut manifest, _) = sample().clone();
    let incarnation = &mut manifest.incarnations[0];
    let chosen = settings(*how);
    incarnation.data_only = chosen.data_only;
    incarnation.settings = chosen.settings;
    let inspector = Inspector::new(&manifest).unwrap();
    let incarnation = manifest.newest().unwrap();
    let mut streams = [0, 1].map(|stream| inspector.stream(incarnation, stream));
    let mut start = 0;
    for (kind, stream, payload) in frames(input) {
        let end = start + payload.len() as u64 + 10;
        let frame = hyades_wal::Frame { start, end, kind, payload };
        start = end;
        if let Ok(Some(record)) = streams[stream].read(&frame) {
            let _ = (record.tid(), record.validity(), record.order(), record.content());
        }
    }
}

/// Opens a database on a valid log with the input's frames. Every problem must be an error, also a
/// procedure that runs differently than before.
pub fn replay(input: &[u8]) {
    let Some((how, input)) = input.split_first() else { return };
    let dir = memory();
    write(dir.path(), input, settings(*how));
    let builder = builder(if how & 4 == 0 { RecordKind::Adaptive } else { RecordKind::Data });
    if let Ok(db) = builder.recovery_threads(1 + usize::from(how >> 3 & 1)).open(dir.path()) {
        let _ = (db.digest(), db.rows());
        let scanned = db.try_transact(|tx| tx.scan(MIXED).rows().map(|rows| rows.len()));
        assert!(scanned.is_ok());
    }
}

fn piece_seeds() -> Vec<Vec<u8>> {
    let (_, _, segment) = small();
    let mut seeds = vec![segment[..1024].to_vec(), segment[1024..1400].to_vec()];
    seeds.push(segment[1064..1300].to_vec());
    seeds.push(vec![3, 0x85, 1, 0x90, 3]);
    seeds
}

fn small() -> &'static (tempfile::TempDir, Manifest, Vec<u8>) {
    static SMALL: OnceLock<(tempfile::TempDir, Manifest, Vec<u8>)> = OnceLock::new();
    SMALL.get_or_init(|| {
        let (dir, manifest, segment) = small_log();
        (dir, manifest, fs::read(segment).unwrap())
    })
}

fn manifest_seeds() -> Vec<Vec<u8>> {
    let (dir, ..) = small();
    let mut seeds = Vec::new();
    for name in ["MANIFEST", "HYADES"] {
        let whole = fs::read_to_string(dir.path().join(name)).unwrap();
        let body: Vec<&str> = whole.lines().collect();
        seeds.push(body[1..body.len() - 1].join("\n").into_bytes());
        seeds.push(whole.into_bytes());
    }
    seeds
}

fn stream_seeds() -> Vec<Vec<u8>> {
    let (_, _, segment) = small();
    let used = segment.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    [0u8, 1, 2, 203].map(|how| [&[how], &segment[..used]].concat()).to_vec()
}

fn catalogue_seeds() -> Vec<Vec<u8>> {
    vec![sample().0.catalogue.clone(), br#"{"tables":[],"procedures":[]}"#.to_vec()]
}

fn row_seeds() -> Vec<Vec<u8>> {
    // Whole rows as in data records, after one byte of a delta without a change.
    let mut seeds = vec![vec![1, 12, 0, 7, 0, 0, 0, 4, 0, 0, 0, 1, 2, 3, 4, 1, 2, 1, 9]];
    for (_, payload) in &sample().1 {
        seeds.extend([0, 1, 2].map(|which| [&[which], &payload[5.min(payload.len())..]].concat()));
    }
    seeds
}

fn record_seeds() -> Vec<Vec<u8>> {
    let mut all = vec![0];
    let mut seeds = Vec::new();
    for (kind, payload) in &sample().1 {
        let what = if *kind == FrameKind::Anchor { 6 } else { 0 };
        let length = (payload.len() as u16).to_le_bytes();
        let frame = [&[what], &length[..], &payload[..]].concat();
        all.extend(&frame);
        seeds.push([&[0], &frame[..]].concat());
    }
    seeds.push(all);
    seeds
}
