//! The events for an operator, with the feature `tracing`.
#![allow(missing_docs)]

use hyades::device::{Fault, FaultyDevice, FileDevice, Throttle, ThrottledDevice};
use hyades::{Database, Error, Schema, Table, Type};
use std::fmt::{Debug, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// The events, a line each, from all threads.
#[derive(Clone, Default)]
struct Told {
    lines: Arc<Mutex<Vec<String>>>,
    spans: Arc<AtomicU64>,
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, " {}={value:?}", field.name());
    }
}

impl Told {
    fn line(&self, what: &str, metadata: &Metadata<'_>, record: impl FnOnce(&mut Line)) {
        if metadata.target() == "hyades" {
            let mut line = Line(format!("{} {what}", metadata.level()));
            record(&mut line);
            self.lines.lock().unwrap().push(line.0);
        }
    }

    /// The first line from `from` on with all of these parts; returns the start of the next line.
    fn expect(&self, from: usize, parts: &[&str]) -> usize {
        let lines = self.lines.lock().unwrap();
        let has_all = |line: &String| parts.iter().all(|part| line.contains(part));
        let at = lines[from..].iter().position(has_all);
        from + at.unwrap_or_else(|| panic!("{parts:?} is not in {:#?}", &lines[from..])) + 1
    }
}

impl Subscriber for Told {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let name = format!("span {}", span.metadata().name());
        self.line(&name, span.metadata(), |line| span.record(line));
        Id::from_u64(self.spans.fetch_add(1, Ordering::Relaxed) + 1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        self.line("event", event.metadata(), |line| event.record(line));
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

const WORDS: Table = Table::nth(0);

fn open(dir: &std::path::Path, change: impl FnOnce(&mut hyades::LogSettings)) -> Database {
    let mut builder = Database::builder().streams(2).log_settings(change);
    builder.table(Schema::new("words").column("word", Type::Text).primary_key(&["word"]));
    builder.open(dir).unwrap()
}

fn insert(db: &Database, word: &str) -> Result<(), Error> {
    db.transact(|tx| Ok(tx.overwrite(WORDS, &[word.into()])?))
}

fn a_life(dir: &std::path::Path, told: &Told) {
    let db = open(dir, |log| (log.buffer_bytes, log.segment_bytes) = (4096, 1 << 16));
    let mut at = told.expect(0, &["INFO span open", "protocol=", "dir="]);
    at = told.expect(at, &["INFO event", "log opened", "found=false"]);
    told.expect(at, &["INFO event", "database opened", "records=0"]);
    // Much more than the buffers hold, so that the session has to wait, and than a segment holds.
    let mut session = db.session().unwrap();
    let mut last = None;
    for n in 0..2000 {
        let word = format!("{n:01000}");
        let put = session.submit(|tx| Ok(tx.overwrite(WORDS, &[word[..].into()])?));
        last = Some(put.unwrap().1);
    }
    last.unwrap().wait().unwrap();
    told.expect(at, &["DEBUG event", "session waits for room in the log"]);
    told.expect(at, &["DEBUG event", "segment begun", "sequence="]);
    drop(session);
    let report = db.checkpoint().unwrap();
    at = told.expect(at, &["INFO span checkpoint"]);
    at = told.expect(at, &["INFO event", "checkpoint begun", "number=1"]);
    told.expect(at, &["DEBUG event", "segments truncated", "segments="]);
    let rows = format!("rows={}", report.rows);
    told.expect(at, &["INFO event", "checkpoint taken", &rows, "bytes=", "truncated_bytes="]);
    db.close().unwrap();
    told.expect(at, &["INFO event", "database closed", "in_good_order=true"]);
}

fn a_second_life(dir: &std::path::Path, copy: &std::path::Path, told: &Told) {
    let mut at = told.lines.lock().unwrap().len();
    let db = open(dir, |_| {});
    at = told.expect(at, &["INFO event", "log opened", "found=true"]);
    at = told.expect(at, &["INFO event", "checkpoint loaded", "number=1", "rows=2000"]);
    at = told.expect(at, &["INFO event", "incarnation replayed", "streams=2"]);
    at = told.expect(at, &["INFO event", "database opened"]);
    db.backup(copy).unwrap();
    told.expect(at, &["INFO event", "backup taken", "files="]);
}

/// One test, since the log's own threads report only to a subscriber of the whole process.
#[test]
fn an_operator_sees_what_a_database_does() {
    let told = Told::default();
    tracing::subscriber::set_global_default(told.clone()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    a_life(&dir.path().join("a"), &told);
    a_second_life(&dir.path().join("a"), &dir.path().join("copy"), &told);

    let at = told.lines.lock().unwrap().len();
    let latency = Throttle { latency_ns: 120_000_000, ..Throttle::default() };
    let slow = ThrottledDevice::new(FileDevice::shared(), latency);
    let db = open(&dir.path().join("slow"), |log| log.device = Some(Arc::new(slow)));
    insert(&db, "one").unwrap();
    drop(db);
    told.expect(at, &["WARN event", "slow sync", "stream=", "milliseconds=1"]);

    let at = told.lines.lock().unwrap().len();
    let faulty = FaultyDevice::new(FileDevice::shared());
    let device = faulty.clone();
    let db = open(&dir.path().join("faulty"), |log| log.device = Some(Arc::new(device)));
    // The next sync may be the sync of a segment in preparation: then a later try fails.
    let fails = |n: u32| {
        faulty.arm(Fault::Sync(0));
        insert(&db, &n.to_string()).is_err()
    };
    assert!((0..20).any(fails), "no sync of a transaction fails");
    let at = told.expect(at, &["ERROR event", "the log stopped", "cause=", "sync"]);
    db.checkpoint().unwrap_err();
    drop(db);
    told.expect(at, &["INFO event", "database closed", "in_good_order=false"]);

    // Nothing is told of single transactions.
    let at = told.lines.lock().unwrap().len();
    let db = open(&dir.path().join("quiet"), |_| {});
    let opened = told.lines.lock().unwrap().len();
    (0..100).for_each(|n| insert(&db, &n.to_string()).unwrap());
    let is_of_a_transaction = |line: &&String| !line.contains("slow sync");
    let later = told.lines.lock().unwrap()[opened..].to_vec();
    assert_eq!(later.iter().filter(is_of_a_transaction).count(), 0, "{later:#?}");
    assert!(opened > at);
}
