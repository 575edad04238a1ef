//! Promise: a log of an earlier version, in which every frame of a row states where its transaction
//! begins, is read; a manifest that names frames of the present version is refused by an earlier
//! version.

use crate::common::directory;
use hyades::{Column, Database, Schema, Table, Type};
use hyades_schemes::PHYSIOLOGICAL;
use hyades_wal::{FrameKind, IncarnationSettings, LogOptions, Lsn, ROW_HEADS, SHORT_HEADS, varint};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

const ROWS: Table = Table::nth(0);
const TEXT: Column<[u8]> = Column::at(1);

fn open(dir: &Path, undo: bool) -> Database {
    let mut builder =
        Database::builder().protocol(PHYSIOLOGICAL).recovery_threads(1).streams(1).log_settings(
            |log| {
                log.research.undo = undo;
                log.buffer_bytes = 1 << 14;
                log.segment_bytes = 1 << 20;
            },
        );
    let schema = Schema::new("rows").column("id", Type::I64).column("text", Type::Bytes);
    builder.table(schema.primary_key(&["id"]));
    builder.open(dir).unwrap()
}

/// Changes three rows in one transaction. The text of the last row does not fit a frame.
fn change(db: &Database, with: u8) {
    db.transact(|tx| {
        tx.upsert(ROWS, &[1i64.into(), [with; 20][..].into()])?;
        tx.upsert(ROWS, &[i64::from(with).into(), [with; 30][..].into()])?;
        tx.upsert(ROWS, &[2i64.into(), [with; 9000][..].into()])?;
        Ok(())
    })
    .unwrap();
    db.transact(|tx| Ok(tx.update(ROWS, 1i64, &[TEXT.set(&[with; 5])])?)).unwrap();
}

fn options(dir: &Path) -> LogOptions {
    let mut options = LogOptions::new(vec![dir.to_owned()], 1);
    options.segment_bytes = 1 << 20;
    options
}

/// The frames of a log: kind, start, and payload.
type Frames = Vec<(FrameKind, Lsn, Vec<u8>)>;

/// Writes the log of `from` anew as an earlier version did, without its last `lost` frames.
fn write_as_before(from: &Path, to: &Path, lost: usize) {
    let recovering = hyades_wal::open(options(from)).unwrap();
    let newest = recovering.manifest().newest().unwrap().clone();
    let mut frames = Frames::new();
    for mut reader in recovering.readers() {
        while let Some(chunk) = reader.next_chunk().unwrap() {
            frames.extend(chunk.frames().map(|f| (f.kind, f.start, f.payload.to_vec())));
        }
    }
    frames.truncate(frames.len() - lost);
    let mut settings = newest.settings;
    assert_eq!(settings.remove(ROW_HEADS).as_deref(), Some(SHORT_HEADS));
    let settings = IncarnationSettings {
        catalogue: recovering.manifest().catalogue.clone(),
        data_only: newest.data_only,
        protocol: newest.protocol,
        settings,
    };
    let empty = hyades_wal::open(options(to)).unwrap();
    let verdict = empty.verdict(&[]).unwrap();
    let log = empty.start(settings, &verdict, 1).unwrap();
    let mut writer = log.writer().unwrap();
    // Where first frames were, and are now.
    let mut moved = BTreeMap::<Lsn, Lsn>::new();
    for (kind, start, payload) in &frames {
        match kind {
            FrameKind::Part => {
                let flags = payload[0];
                let (first, change) = match flags & 4 {
                    0 => {
                        let (first, change) = payload[1..].split_first_chunk().unwrap();
                        (Lsn::from_le_bytes(*first), change)
                    }
                    _ => (*start, &payload[1..]),
                };
                let reservation = writer.reserve(0, 9 + change.len());
                let now = moved.entry(first).or_insert(reservation.start());
                let mut before = now.to_le_bytes().to_vec();
                before.push(flags & 3);
                before.extend_from_slice(change);
                reservation.fill(FrameKind::Part, &before[..]);
            }
            FrameKind::Record => {
                // Flags, TID, the start of the epoch if stated, the place of the first frame.
                assert_eq!(payload[0] & !32, 16, "{payload:?}");
                let mut at = 1;
                at += varint::get(&payload[at..]).unwrap().1;
                at += varint::get(&payload[at..]).unwrap().1;
                at += if payload[0] & 32 == 0 { 0 } else { 8 };
                let (first, len) = varint::get(&payload[at..]).unwrap();
                assert_eq!(at + len, payload.len(), "{payload:?}");
                let mut before = payload[..at].to_vec();
                varint::put(&mut before, moved[&first]);
                writer.reserve(0, before.len()).fill(FrameKind::Record, &before[..]);
            }
            other => panic!("{other:?}"),
        }
    }
    log.flush().unwrap();
}

fn format_of(dir: &Path) -> String {
    let manifest = fs::read_to_string(dir.join("MANIFEST")).unwrap();
    manifest.lines().next().unwrap().to_string()
}

#[test]
fn a_log_of_an_earlier_version_is_read_and_continued() {
    for undo in [false, true] {
        // Of the last transaction nothing is lost, or the record is.
        for (lost, dead) in [(0, 0), (1, 1)] {
            let (new, former) = (directory(), directory());
            let db = open(new.path(), undo);
            change(&db, 10);
            change(&db, 11);
            let before = db.digest();
            db.transact(|tx| {
                tx.update(ROWS, 1i64, &[TEXT.set(&[3; 50])])?;
                Ok(tx.update(ROWS, 2i64, &[TEXT.set(&[3; 7000])])?)
            })
            .unwrap();
            let after = db.digest();
            drop(db);
            assert_eq!(format_of(new.path()), r#"{"format":8}"#);
            write_as_before(new.path(), former.path(), lost);
            assert_eq!(format_of(former.path()), r#"{"format":1}"#);
            let db = open(former.path(), undo);
            let expected = if lost == 0 { after } else { before };
            assert_eq!((db.digest(), db.recovery().dead), (expected, dead), "{undo} {lost}");
            // The next incarnation is of the present version.
            change(&db, 12);
            let digest = db.digest();
            drop(db);
            assert_eq!(format_of(former.path()), r#"{"format":8}"#);
            let db = open(former.path(), undo);
            assert_eq!((db.digest(), db.recovery().dead), (digest, dead), "{undo} {lost}");
            db.close().unwrap();
        }
    }
}
