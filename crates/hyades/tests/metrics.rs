//! Metrics count events, and their text is in the format of Prometheus.
#![allow(missing_docs)]

use hyades::{Abort, Database, Error, Metric, MetricValue, Protocol, Table, Transaction};
use hyades_schemes::POPLAR;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

#[derive(Table)]
struct Counter {
    #[key]
    id: i64,
    count: i64,
}

const STREAMS: usize = 2;

fn database(dir: &std::path::Path, protocol: Protocol) -> Database {
    let mut builder = Database::builder().protocol(protocol).streams(STREAMS);
    let counters = builder.table_of::<Counter>();
    builder.procedure("count", 1, move |tx: &Transaction<'_>, id: i64| {
        let count = counters.get(tx, id)?.map_or(0, |counter| counter.count) + 1;
        if count > 2 {
            return Err(Abort::User(count));
        }
        counters.upsert(tx, &Counter { id, count }).map(drop)
    });
    builder.open(dir).unwrap()
}

/// Nine commits, two errors, one panic and one conflict; nine of the transactions write and wait.
fn work(db: &Database) {
    let counters = Table::nth(0);
    let put = |tx: &Transaction<'_>, id: i64| tx.overwrite(counters, &[id.into(), 0i64.into()]);
    for id in 1..=4 {
        db.transact(|tx| Ok(put(tx, id)?)).unwrap();
    }
    for _ in 0..2 {
        db.call::<_, ()>("count", &9i64).unwrap();
    }
    let refused = db.call::<_, ()>("count", &9i64);
    assert!(matches!(refused, Err(Error::Aborted(Abort::User(3)))));
    let refused = db.transact(|tx| {
        put(tx, 10)?;
        Err::<(), _>(Error::user("no"))
    });
    assert!(matches!(refused, Err(Error::User(_))));
    let panicking = || db.transact(|_| -> Result<(), Error> { resume_unwind(Box::new("a test")) });
    catch_unwind(AssertUnwindSafe(panicking)).unwrap_err();
    // Another transaction changes a row that this transaction has read.
    let mut is_first = true;
    db.transact(|tx| {
        tx.get(counters, 2i64)?;
        if std::mem::take(&mut is_first) {
            std::thread::scope(|scope| {
                let other = || db.session()?.submit(|tx| Ok(put(tx, 2)?))?.1.wait();
                scope.spawn(other).join().expect("no panic")
            })?;
        }
        Ok(put(tx, 3)?)
    })
    .unwrap();
    db.transact(|tx| Ok(tx.get(counters, 1i64)?.is_some())).unwrap();
}

#[test]
fn the_values_add_up_after_known_work() {
    let dir = tempfile::tempdir().unwrap();
    let db = database(dir.path(), Protocol::Taurus);
    work(&db);
    // The log may write by itself just now: both are of a moment without such a write.
    let (metrics, stats) = loop {
        let (stats, metrics) = (db.stats(), db.metrics());
        if format!("{stats:?}") == format!("{:?}", db.stats()) {
            break (metrics, stats);
        }
    };
    let total = |name: &str| metrics.total(name).unwrap_or_else(|| panic!("no {name}"));
    let aborts = |cause: &str| {
        let is_it = |metric: &&Metric| {
            metric.name == "hyades_aborts_total" && metric.labels == [("cause", cause.to_string())]
        };
        metrics.iter().find(is_it).expect("a cause").value.clone()
    };
    assert_eq!(total("hyades_commits_total"), 9.0);
    assert_eq!(aborts("error"), MetricValue::Counter(2.0));
    assert_eq!(aborts("panic"), MetricValue::Counter(1.0));
    assert_eq!(aborts("conflict"), MetricValue::Counter(1.0));
    assert_eq!((total("hyades_retries_total"), total("hyades_starved_total")), (1.0, 0.0));
    let ended = total("hyades_commits_total") + total("hyades_aborts_total");
    assert_eq!(total("hyades_attempts_total"), ended);
    assert_eq!((stats.attempts, stats.commits, stats.failures, stats.panics), (13, 9, 2, 1));
    // Both sources count the same.
    assert_eq!(total("hyades_log_bytes_total"), stats.log_bytes as f64);
    assert_eq!(total("hyades_device_bytes_total"), stats.device_bytes as f64);
    assert_eq!(total("hyades_sync_seconds"), stats.syncs as f64);
    assert!(stats.log_bytes > 0 && stats.syncs > 0);
    let waited = total("hyades_acknowledgement_seconds");
    assert!((7.0..=11.0).contains(&waited), "{waited} waited");
    assert_eq!(total("hyades_log_stopped"), 0.0);
    // The log writes by itself now and then, also just now.
    let backlog = || db.metrics().total("hyades_log_backlog_bytes").expect("a gauge");
    let began = std::time::Instant::now();
    while backlog() > 0.0 {
        assert!(began.elapsed().as_secs() < 30, "the log falls idle");
        std::thread::yield_now();
    }
    assert_eq!(total("hyades_log_buffer_bytes"), (STREAMS * (8 << 20)) as f64);
    // A row with only the vectors of one record takes no slot, so there may be no hot row. The
    // common slot is always there.
    let (rows, bytes) = (total("hyades_hot_rows"), total("hyades_hot_rows_bytes"));
    assert!(bytes >= 64.0 * (rows + 1.0), "{rows} rows, {bytes} bytes");
    assert_eq!((total("hyades_checkpoints_total"), total("hyades_checkpoint_seconds")), (0.0, 0.0));
    let report = db.checkpoint().unwrap();
    let metrics = db.metrics();
    assert_eq!(metrics.total("hyades_checkpoint_seconds"), Some(1.0));
    assert_eq!(metrics.total("hyades_checkpoint_rows"), Some(report.rows as f64));
    assert_eq!(metrics.total("hyades_checkpoints_total"), Some(1.0));
}

/// A sample line: its name, its labels, its value.
fn sample(line: &str) -> (&str, Vec<(&str, &str)>, f64) {
    let (left, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line:?}"));
    let value = value.parse().unwrap_or_else(|_| panic!("{line:?}"));
    let (name, labels) = match left.split_once('{') {
        None => (left, ""),
        Some((name, labels)) => (name, labels.strip_suffix('}').expect("a closing brace")),
    };
    assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{line:?}");
    let pairs = labels.split(',').filter(|pair| !pair.is_empty()).map(|pair| {
        let (label, value) = pair.split_once('=').expect("a label has a value");
        (label, value.strip_prefix('"').and_then(|v| v.strip_suffix('"')).expect("quotes"))
    });
    (name, pairs.collect(), value)
}

#[test]
fn the_text_is_in_the_format_of_prometheus() {
    for protocol in [Protocol::Taurus, POPLAR, Protocol::None] {
        let dir = tempfile::tempdir().unwrap();
        let db = database(dir.path(), protocol);
        work(&db);
        let text = db.metrics().to_prometheus();
        let mut types = HashMap::new();
        let (mut samples, mut below) = (0, 0.0);
        for line in text.lines() {
            if let Some(declaration) = line.strip_prefix("# TYPE ") {
                let (name, kind) = declaration.split_once(' ').unwrap();
                assert!(types.insert(name, kind).is_none(), "{name} comes twice");
                continue;
            }
            if line.starts_with("# HELP ") {
                continue;
            }
            let (name, labels, value) = sample(line);
            let base = ["_bucket", "_sum", "_count"].iter().find_map(|s| name.strip_suffix(s));
            let histogram = base.filter(|base| types.get(base) == Some(&"histogram"));
            assert!(histogram.is_some() || types.contains_key(name), "{name} has no type");
            if let Some(("le", bound)) = labels.last().filter(|_| histogram.is_some()) {
                below = if *bound == "0.00001" { value } else { f64::max(below, value) };
                assert_eq!(below, value, "the buckets of {name} fall");
            } else if name.ends_with("_count") {
                assert_eq!(below, value, "{name} is not what its buckets hold");
            }
            samples += 1;
        }
        assert!(samples > 50, "{text}");
        let is_logged = protocol != Protocol::None;
        assert_eq!(text.contains("hyades_log_bytes_total{stream=\"1\"} "), is_logged, "{text}");
        assert_eq!(text.contains("hyades_acknowledgement_seconds_count 0\n"), !is_logged);
    }
}
