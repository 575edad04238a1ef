//! A log and a data component belong together from the first opening on; and redo larger than
//! memory.
#![allow(missing_docs)]

#[path = "common/faulty.rs"]
mod faulty;

use faulty::{Fault, Faulty};
use hyades_deuteronomy::{
    DataComponent, DataLayer, Database, Error, LogOptions, MemoryData, Operation, Options,
    PartitionedData,
};
use hyades_platform::device::MemoryDevice;
use std::path::Path;
use std::sync::{Arc, Mutex};

const BUFFER: usize = 1 << 16;

fn options(dir: &Path) -> Options {
    let mut log = LogOptions::new(vec![dir.to_owned()], 2);
    log.device = MemoryDevice::shared();
    log.buffer_bytes = BUFFER;
    log.segment_bytes = 1 << 18;
    log.stepped = true;
    Options::new(log)
}

fn open(dir: &Path, data: &Arc<MemoryData>) -> Result<Database, Error> {
    Database::open(options(dir), Arc::clone(data) as Arc<dyn DataComponent>)
}

/// Writes, acknowledged and applied, and then the process is killed. No checkpoint is taken.
fn fill(dir: &Path, data: &Arc<MemoryData>, keys: u32, value: &[u8]) -> Arc<MemoryData> {
    let database = open(dir, data).unwrap();
    let mut session = database.session().unwrap();
    for key in 0..keys {
        let (_, ticket) = session.submit(|tx| tx.put(&key.to_be_bytes(), value)).unwrap();
        (0..2).for_each(|stream| while database.log().step(stream) {});
        ticket.wait().unwrap();
    }
    assert!(database.step_proxy().unwrap());
    drop((session, database));
    Arc::new(data.after_crash(|| true))
}

fn refusal(opened: Result<Database, Error>) -> String {
    opened.map(drop).unwrap_err().to_string()
}

fn reads(dir: &Path, data: &Arc<MemoryData>, key: u32) -> Option<Vec<u8>> {
    let database = open(dir, data).unwrap();
    let mut session = database.session().unwrap();
    session.execute(|tx| tx.get(&key.to_be_bytes())).unwrap().map(|value| value.to_vec())
}

/// The timestamps of one log would decide against the timestamps of the other.
#[test]
fn a_data_component_that_was_filled_from_one_log_is_refused_by_another() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let outliving = || Arc::new(MemoryData::outliving());
    let (mut of_one, of_two) = (outliving(), fill(two.path(), &outliving(), 9, b"two"));
    of_one = fill(one.path(), &of_one, 1, b"one");
    let wrong = refusal(open(one.path(), &of_two));
    assert!(wrong.contains("another log"), "{wrong}");
    // Nothing was changed, and an empty data component is filled from the log.
    assert_eq!(reads(one.path(), &of_one, 0).as_deref(), Some(&b"one"[..]));
    assert_eq!(reads(two.path(), &of_two, 8).as_deref(), Some(&b"two"[..]));
    assert_eq!(reads(one.path(), &outliving(), 0).as_deref(), Some(&b"one"[..]));
}

/// Of an older program, or of none.
#[test]
fn a_data_component_with_keys_that_names_no_log_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    drop(fill(dir.path(), &Arc::new(MemoryData::outliving()), 1, b"1"));
    for data in [MemoryData::outliving(), MemoryData::new()].map(Arc::new) {
        data.apply(&[Operation { key: b"k", ts: 9, value: None }]).unwrap();
        let wrong = refusal(open(dir.path(), &data));
        assert!(wrong.contains("does not say of which log"), "{wrong}");
        let fresh = tempfile::tempdir().unwrap();
        let wrong = refusal(open(fresh.path(), &data));
        assert!(wrong.contains("the log is new"), "{wrong}");
        assert_eq!(data.resume_point().unwrap(), None, "it was left as it is");
    }
}

/// A still empty data component belongs to its log as well.
#[test]
fn the_first_opening_decides_and_not_the_first_write() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let data = Arc::new(MemoryData::outliving());
    drop(open(one.path(), &data).unwrap());
    let data = Arc::new(data.after_crash(|| false));
    drop(open(two.path(), &Arc::new(MemoryData::outliving())).unwrap());
    let wrong = refusal(open(two.path(), &data));
    assert!(wrong.contains("another log"), "{wrong}");
    drop(open(one.path(), &data).unwrap());
}

#[test]
fn a_crash_after_the_log_was_made_and_before_it_is_named_is_no_obstacle() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let data = Faulty::new(Arc::new(MemoryData::outliving()));
    *data.checkpoint.lock().unwrap() = Some(Fault::Fails);
    let failed = refusal(Database::open(options(dir.path()), data.clone()));
    assert!(failed.contains("a test says so"), "{failed}");
    let data = Arc::new(data.data.after_crash(|| true));
    assert_eq!(data.resume_point().unwrap(), None);
    // The data component belongs to neither, and the log is not new.
    drop(open(dir.path(), &data).unwrap());
    drop(open(other.path(), &Arc::new(MemoryData::outliving())).unwrap());
    let wrong = refusal(open(other.path(), &data));
    assert!(wrong.contains("another log"), "{wrong}");
}

/// Notes the bytes of each batch.
struct Batches {
    data: MemoryData,
    bytes: Mutex<Vec<usize>>,
}

impl DataLayer for Batches {
    fn below(&self) -> &dyn DataComponent {
        &self.data
    }

    fn apply(&self, batch: &[Operation<'_>]) -> Result<(), Error> {
        let bytes = batch.iter().map(|o| o.key.len() + o.value.map_or(0, <[u8]>::len)).sum();
        self.bytes.lock().unwrap().push(bytes);
        self.data.apply(batch)
    }
}

#[test]
fn redo_that_is_larger_than_memory_goes_to_the_data_component_in_pieces() {
    const VALUE: usize = 1000;
    let dir = tempfile::tempdir().unwrap();
    let data = Arc::new(MemoryData::outliving());
    open(dir.path(), &data).unwrap().close().unwrap();
    assert!(!data.resume_point().unwrap().unwrap().is_initial());
    let kept = data.after_crash(|| true);
    drop(fill(dir.path(), &data, 1000, &[7; VALUE]));
    let data = Arc::new(Batches { data: kept, bytes: Mutex::default() });
    let mut options = options(dir.path());
    options.memory_bytes = 64 << 10;
    let database = Database::open(options, data.clone()).unwrap();
    assert_eq!((database.recovered().transactions, data.data.items()), (1000, 1000));
    let pieces = data.bytes.lock().unwrap().clone();
    let (largest, all) = (*pieces.iter().max().unwrap(), pieces.iter().sum::<usize>());
    assert!(all >= 1000 * VALUE, "{all} bytes");
    // Half of the budget, or the unproven content of the buffers of two streams.
    assert!(largest <= 2 * BUFFER && pieces.len() > 10, "{pieces:?}");
    let mut session = database.session().unwrap();
    let read = session.execute(|tx| tx.get(&999u32.to_be_bytes())).unwrap();
    assert_eq!(read.as_deref(), Some(&[7; VALUE][..]));
}

/// The first of two data components ends with the process. The second makes its data stable all the
/// same, and nothing needed by the first is truncated or forgotten.
#[test]
fn each_of_several_data_components_is_made_stable_if_it_outlives_the_process() {
    let dir = tempfile::tempdir().unwrap();
    let mut outliving = Arc::new(MemoryData::outliving());
    let mut lowest_point = None;
    for life in 0..3u8 {
        let parts: Vec<Arc<dyn DataComponent>> =
            vec![Arc::clone(&outliving) as Arc<dyn DataComponent>, Arc::new(MemoryData::new())];
        let data = Arc::new(PartitionedData::new(vec![b"m".to_vec()], parts).unwrap());
        assert!(!data.limits().is_durable);
        let database = Database::open(options(dir.path()), data).unwrap();
        let mut session = database.session().unwrap();
        for key in [b"a", b"b", b"x", b"y"] {
            let expected = (life > 0 && *key != *b"b").then(|| [life - 1]);
            let read = session.execute(|tx| tx.get(key)).unwrap();
            assert_eq!(read.as_deref(), expected.as_ref().map(|v| &v[..]), "{key:?} in {life}");
        }
        let ticket = session.submit(|tx| {
            tx.put(b"a", &[life])?;
            tx.put(b"x", &[life])?;
            tx.put(b"y", &[life])?;
            tx.delete(b"b")
        });
        (0..2).for_each(|stream| while database.log().step(stream) {});
        ticket.unwrap().1.wait().unwrap();
        assert_eq!(database.checkpoint().unwrap(), 0, "the log is kept");
        drop((session, database));
        // Only stable data are kept.
        outliving = Arc::new(outliving.after_crash(|| false));
        assert_eq!(outliving.content()[0].2, [life], "its checkpoint was not taken");
        let point = outliving.resume_point().unwrap().unwrap();
        assert!(!point.is_initial() && lowest_point.is_none_or(|last| last < point.incarnation));
        lowest_point = Some(point.incarnation);
    }
}
