//! Calls of SlateDB, which is asynchronous, from threads that wait, for a bounded time.

use crate::failure::{failed, unanswered};
use hyades_deuteronomy::Error;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};

/// The threads that run the background work of a database.
const THREADS: usize = 2;

/// Wakes a thread that waits.
struct Waiting(Thread);

impl Wake for Waiting {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The threads that run SlateDB's background work. A caller's future runs on the caller's own
/// thread, which may belong to another runtime.
pub(crate) struct Threads {
    /// None only during the drop.
    runtime: Option<Runtime>,
}

impl Threads {
    /// Starts the threads.
    ///
    /// # Errors
    /// The system starts no more threads.
    pub fn start() -> Result<Self, Error> {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(THREADS).thread_name("hyades-slatedb").enable_all();
        let runtime = builder.build().map_err(|error| {
            Error::DataComponent(format!("the threads of SlateDB do not start: {error}"))
        })?;
        Ok(Self { runtime: Some(runtime) })
    }

    /// Runs a future until its end. The caller blocks.
    ///
    /// # Errors
    /// The future's error; or the future is not ready after `patience`, and is dropped. Requests
    /// under way may take effect later.
    pub fn wait<T>(
        &self,
        doing: &str,
        patience: Duration,
        future: impl Future<Output = Result<T, slatedb::Error>>,
    ) -> Result<T, Error> {
        let runtime = self.runtime.as_ref().expect("it is there until the drop");
        let _entered = runtime.enter();
        let mut future = pin!(future);
        let waker = Waker::from(Arc::new(Waiting(std::thread::current())));
        let mut context = Context::from_waker(&waker);
        let mut began = None;
        loop {
            if let Poll::Ready(result) = future.as_mut().poll(&mut context) {
                return result.map_err(|error| failed(doing, &error));
            }
            let waited = began.get_or_insert_with(Instant::now).elapsed();
            let Some(left) = patience.checked_sub(waited).filter(|left| !left.is_zero()) else {
                return Err(unanswered(doing, patience));
            };
            std::thread::park_timeout(left);
        }
    }
}

impl Drop for Threads {
    /// Without a wait for background work: the drop may be in another runtime.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_with_the_future_or_with_patience_also_inside_another_runtime() {
        let threads = Threads::start().unwrap();
        let soon = async {
            tokio::time::sleep(Duration::from_millis(5)).await;
            Ok(7)
        };
        let outside = Builder::new_current_thread().build().unwrap();
        let waited = outside.block_on(async { threads.wait("adding", Duration::MAX, soon) });
        assert_eq!(waited.unwrap(), 7);
        let began = Instant::now();
        let never = std::future::pending::<Result<(), slatedb::Error>>();
        let error = threads.wait("waiting", Duration::from_millis(30), never).unwrap_err();
        assert!(began.elapsed() >= Duration::from_millis(30));
        assert!(error.to_string().contains("while waiting"), "{error}");
        outside.block_on(async { drop(threads) });
    }
}
