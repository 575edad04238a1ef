//! The limits of keys, values, transactions, streams, options, timestamps and copies: acceptance at
//! each limit and refusal past the limit, without a loss by either.
#![allow(missing_docs)]

mod clock;
mod copies;
mod keys;
mod settings;
mod streams;
mod values;

use hyades_deuteronomy::{
    DataComponent, Database, Error, LogOptions, MemoryData, Options, Session,
};
use hyades_platform::device::MemoryDevice;
use std::collections::BTreeMap;
use std::future::Future;
use std::ops::Bound::Unbounded;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

type Content = BTreeMap<Vec<u8>, Vec<u8>>;

/// The defaults, but for the device.
fn options(dir: &Path, streams: usize) -> Options {
    let mut log = LogOptions::new(vec![dir.to_owned()], streams);
    log.device = MemoryDevice::shared();
    Options::new(log)
}

/// The same with buffers fit for many streams.
fn options_of_small_buffers(dir: &Path, streams: usize) -> Options {
    let mut options = options(dir, streams);
    options.log.buffer_bytes = 1 << 16;
    options.log.segment_bytes = 1 << 18;
    options
}

fn content(session: &mut Session) -> Content {
    let rows = session.execute(|tx| tx.scan(Unbounded, Unbounded, usize::MAX)).unwrap();
    rows.into_iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

fn refusal(opened: Result<Database, Error>) -> String {
    opened.map(drop).expect_err("it was opened").to_string()
}

fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::yield_now(),
        }
    }
}

/// Opens a store by name, in the directory `dir`.
fn open_store(name: &str, dir: &Path) -> Arc<dyn DataComponent> {
    match name {
        "memory" => Arc::new(MemoryData::new()),
        #[cfg(feature = "redb")]
        "redb" => Arc::new(hyades_deuteronomy::RedbData::open(&dir.join("redb"), 1 << 20).unwrap()),
        #[cfg(feature = "fjall")]
        "fjall" => {
            Arc::new(hyades_deuteronomy::FjallData::open(&dir.join("fjall"), 1 << 20).unwrap())
        }
        _ => panic!("{name} in {}", dir.display()),
    }
}

/// The names of the stores of the build.
const STORES: &[&str] = &[
    "memory",
    #[cfg(feature = "redb")]
    "redb",
    #[cfg(feature = "fjall")]
    "fjall",
];

/// The stores with durable data.
const DURABLE_STORES: &[&str] = STORES.split_at(1).1;
