//! Object storage in memory that is away for a while, or lost to a process that dies.

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use hyades_deuteronomy_slatedb::object_store::memory::InMemory;
use hyades_deuteronomy_slatedb::object_store::path::Path;
use hyades_deuteronomy_slatedb::object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::sync::RwLock;

/// The storage as a process sees it.
#[derive(Debug)]
pub struct Storage {
    objects: Arc<InMemory>,
    /// Whether the storage is away: requests fail and are tried again.
    pub is_away: AtomicBool,
    /// The requests that have failed.
    pub refused: AtomicUsize,
    /// Whether the process lives. Held while an object is written.
    lives: RwLock<bool>,
    /// The writes until the process dies.
    left: AtomicUsize,
}

impl Storage {
    /// The storage of a new process.
    pub fn new(objects: Arc<InMemory>) -> Arc<Self> {
        let (is_away, refused) = (AtomicBool::new(false), AtomicUsize::new(0));
        let (lives, left) = (RwLock::new(true), AtomicUsize::new(usize::MAX));
        Arc::new(Self { objects, is_away, refused, lives, left })
    }

    /// Lets the process die at the write after `left` others.
    #[allow(dead_code)]
    pub fn die_after(&self, left: usize) {
        self.left.store(left, Ordering::SeqCst);
    }

    /// The process dies: nothing is written from now on.
    #[allow(dead_code)]
    pub fn die(&self) {
        *self.lives.blocking_write() = false;
    }

    fn check(&self, lives: bool) -> Result<()> {
        if !lives {
            // Not tried again.
            let (operation, implementer) = ("any".into(), "a dead process".into());
            return Err(Error::NotImplemented { operation, implementer });
        }
        if self.is_away.load(Ordering::SeqCst) {
            self.refused.fetch_add(1, Ordering::SeqCst);
            return Err(Error::Generic { store: "test", source: "the storage is away".into() });
        }
        Ok(())
    }

    /// Counts a write.
    fn count(&self, lives: bool) -> Result<()> {
        self.check(lives)?;
        let less = |left: usize| match left {
            usize::MAX => Some(left),
            left => left.checked_sub(1),
        };
        let counted = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
        self.check(counted.is_ok())
    }
}

impl fmt::Display for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a storage for tests")
    }
}

#[async_trait::async_trait]
impl ObjectStore for Storage {
    async fn put_opts(&self, to: &Path, what: PutPayload, opts: PutOptions) -> Result<PutResult> {
        let lives = self.lives.read().await;
        self.count(*lives)?;
        self.objects.put_opts(to, what, opts).await
    }

    async fn put_multipart_opts(
        &self,
        to: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let lives = self.lives.read().await;
        self.count(*lives)?;
        self.objects.put_multipart_opts(to, opts).await
    }

    async fn get_opts(&self, from: &Path, options: GetOptions) -> Result<GetResult> {
        let dead = self.left.load(Ordering::SeqCst) == 0;
        self.check(*self.lives.read().await && !dead)?;
        self.objects.get_opts(from, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        // Only unused objects are deleted.
        self.objects.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        match self.check(true) {
            Ok(()) => self.objects.list(prefix),
            Err(error) => futures_util::stream::once(async { Err(error) }).boxed(),
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.check(true)?;
        self.objects.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let lives = self.lives.read().await;
        self.count(*lives)?;
        self.objects.copy_opts(from, to, options).await
    }
}
