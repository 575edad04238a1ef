//! Tests of the threads for applying operations together.

use super::*;
use crate::data::{DataLayer, MemoryData};
use hyades_wal::LogOptions;
use std::path::PathBuf;

/// The data component in memory, with cuts as allowed by a test.
struct Cuttable<F> {
    data: MemoryData,
    may_cut: F,
    applied: Mutex<Vec<usize>>,
}

impl<F: Fn(&[u8], &[u8]) -> bool + Send + Sync> DataLayer for Cuttable<F> {
    fn below(&self) -> &dyn DataComponent {
        &self.data
    }

    fn may_cut(&self, last: &[u8], next: &[u8]) -> bool {
        (self.may_cut)(last, next)
    }

    fn apply(&self, batch: &[Operation<'_>]) -> Result<(), Error> {
        locked(&self.applied).push(batch.len());
        self.data.apply(batch)
    }
}

fn cuttable<F: Fn(&[u8], &[u8]) -> bool + Send + Sync>(may_cut: F) -> Arc<Cuttable<F>> {
    Arc::new(Cuttable { data: MemoryData::new(), may_cut, applied: Mutex::default() })
}

/// The operation of a transaction.
fn operation(key: u16, ts: u64) -> Ranked {
    (0, Version::pending(&key.to_be_bytes(), ts, Some(&ts.to_be_bytes())))
}

fn operations(keys: impl Iterator<Item = u16>) -> Vec<Ranked> {
    keys.zip(1..).map(|(key, ts)| operation(key, ts)).collect()
}

fn key(bytes: &[u8]) -> u16 {
    u16::from_be_bytes(bytes.try_into().unwrap())
}

#[test]
fn pieces_have_about_the_same_length() {
    let data = cuttable(|_, _| true);
    let all = operations(0..100);
    assert_eq!(cut(&*data, &all, 1, 1), [100]);
    assert_eq!(cut(&*data, &all, 4, 1), [25, 50, 75, 100]);
    assert_eq!(cut(&*data, &all, 3, 1), [33, 66, 100]);
    assert_eq!(cut(&*data, &all[..3], 9, 1), [1, 2, 3]);
    assert_eq!(cut(&*data, &all, 9, 40), [40, 80, 100]);
    assert_eq!(cut(&*data, &all[..41], 9, 40), [40, 41]);
    assert_eq!(cut(&*data, &all[..40], 9, 40), [40], "it is too short");
}

#[test]
fn pieces_have_no_key_in_common() {
    let data = cuttable(|_, _| true);
    // Each key has ten operations.
    let all = operations((0..100).map(|n| n / 10));
    assert_eq!(cut(&*data, &all, 4, 1), [20, 50, 70, 100]);
    assert_eq!(cut(&*data, &all[..10], 4, 1), [10]);
}

#[test]
fn pieces_end_where_the_data_component_says() {
    // A single cut is possible, before the middle or behind the middle.
    for split in [1, 30, 50, 70, 99] {
        let data = cuttable(move |last, next| (key(last) < split) != (key(next) < split));
        let all = operations(0..100);
        let at = usize::from(split);
        assert_eq!(cut(&*data, &all, 2, 1), [at, 100]);
        assert_eq!(cut(&*data, &all, 5, 1).last(), Some(&100));
    }
    let data = cuttable(|_, _| false);
    assert_eq!(cut(&*data, &operations(0..100), 4, 1), [100]);
    // Of two, the nearer cut.
    let data = cuttable(|_, next| matches!(key(next), 10 | 60));
    assert_eq!(cut(&*data, &operations(0..100), 2, 1), [60, 100]);
    assert_eq!(cut(&*data, &operations(0..100), 3, 1), [10, 60, 100]);
}

fn pool(fewest: usize, most: usize, stepped: bool) -> Arc<ProxyPool> {
    let mut log = LogOptions::new(vec![PathBuf::from("/log")], 1);
    log.stepped = stepped;
    let mut options = Options::new(log);
    options.proxy_threads = fewest..=most;
    Arc::new(ProxyPool::new(&options, HeldBytes::default()))
}

/// Applies to a data component: the newest operation on each key is there, and all versions say so.
fn apply_all<F>(pool: &Arc<ProxyPool>, data: &Arc<Cuttable<F>>, keys: u16)
where
    F: Fn(&[u8], &[u8]) -> bool + Send + Sync + 'static,
{
    let all = operations((0..keys).chain(0..keys));
    let versions: Vec<_> = all.iter().map(|(_, version)| version.clone()).collect();
    let data = Arc::clone(data) as Arc<dyn DataComponent>;
    pool.apply(&data, all.into_iter().map(|(_, operation)| operation)).unwrap();
    assert!(versions.iter().all(|version| version.is_applied()));
    for key in 0..keys {
        assert_eq!(data.get(&key.to_be_bytes()).unwrap().ts, u64::from(keys + key + 1));
    }
}

#[test]
fn one_thread_applies_all_pieces_where_it_does_all_work() {
    let (pool, data) = (pool(3, 3, true), cuttable(|_, _| true));
    apply_all(&pool, &data, 7);
    assert_eq!(*locked(&data.applied), [2, 2, 3]);
    assert_eq!(locked(&pool.state).helpers.len(), 0);
}

#[test]
fn helpers_are_started_when_there_are_pieces_and_end_with_the_pool() {
    let (pool, data) = (pool(3, 3, false), cuttable(|_, _| true));
    apply_all(&pool, &data, 100);
    assert_eq!((locked(&data.applied).len(), locked(&pool.state).running), (1, 0));
    apply_all(&pool, &data, 1000);
    assert_eq!((locked(&data.applied).len(), locked(&pool.state).running), (4, 2));
    pool.close(Instant::now() + Duration::from_secs(60));
    assert_eq!(locked(&pool.state).running, 0);
    locked(&data.applied).clear();
    apply_all(&pool, &data, 1000);
    assert_eq!((locked(&data.applied).len(), locked(&pool.state).running), (3, 0));
}

#[test]
fn a_helper_that_has_nothing_to_do_ends_unless_it_is_one_of_the_fewest() {
    for fewest in [1, 2] {
        let (pool, data) = (pool(fewest, 3, false), cuttable(|_, _| true));
        locked(&pool.state).wanted = 2;
        apply_all(&pool, &data, 1000);
        // Helpers ended by now are still in the list.
        assert_eq!(locked(&pool.state).helpers.len(), 2);
        let until = std::time::Instant::now() + Duration::from_secs(60);
        while pool.running() > fewest {
            assert!(std::time::Instant::now() < until, "{} threads", pool.running());
            std::thread::sleep(Duration::from_millis(10));
        }
        std::thread::sleep(IDLE + Duration::from_millis(200));
        assert_eq!((pool.running(), pool.threads()), (fewest, fewest));
        apply_all(&pool, &data, 1000);
        pool.close(Instant::now() + Duration::from_secs(60));
    }
}
