//! What a member of a replicated database counts, for monitoring.

use hyades::Metric;
use hyades_platform::sync::Unpoisoned;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Reads the metrics of the lanes, from any thread.
pub type ReadMetrics = Arc<dyn Fn() -> LaneFigures + Send + Sync>;

/// What is known of the replicated log.
#[derive(Clone, Debug, Default)]
pub struct LaneFigures {
    /// Metrics with the label `lane`, in the order of their names.
    pub metrics: Vec<Metric>,
    /// The time since the log last answered about the lease; `None` before the first answer.
    pub since_answer: Option<Duration>,
}

/// The roles that a member takes, in words.
pub const TAKEN_ROLES: [&str; 5] = ["joining", "standby", "candidate", "primary", "stopped"];

/// Counts of a member. The thread of the member writes, the pages for monitoring read: Relaxed.
#[derive(Default)]
pub struct MembershipFigures {
    roles: [AtomicU64; TAKEN_ROLES.len()],
    primaries: AtomicU64,
    takeovers: Mutex<Takeovers>,
    lanes: Mutex<Option<ReadMetrics>>,
}

/// How long takeovers have lasted, from the taking of the lease until clients were served.
#[derive(Clone, Copy, Debug, Default)]
pub struct Takeovers {
    began: Option<Instant>,
    /// How many have ended well.
    pub count: u64,
    /// All together.
    pub all: Duration,
    /// The last one.
    pub last: Duration,
}

impl MembershipFigures {
    /// The member serves in another role, one of [`TAKEN_ROLES`], which began then.
    pub fn took(&self, role: &str, at: Instant) {
        if let Some(place) = TAKEN_ROLES.iter().position(|taken| *taken == role) {
            self.roles[place].fetch_add(1, Relaxed);
        }
        let mut takeovers = self.takeovers.lock().unpoisoned();
        match (role, takeovers.began.take()) {
            ("candidate", _) => takeovers.began = Some(at),
            ("primary", Some(began)) => {
                let last = began.elapsed();
                takeovers.last = last;
                takeovers.all += last;
                takeovers.count += 1;
            }
            _ => {}
        }
    }

    /// Another member is the primary.
    pub fn saw_another_primary(&self) {
        self.primaries.fetch_add(1, Relaxed);
    }

    /// How often the member took each role.
    pub fn roles(&self) -> impl Iterator<Item = (&'static str, u64)> {
        TAKEN_ROLES.into_iter().zip(&self.roles).map(|(role, count)| (role, count.load(Relaxed)))
    }

    /// How often another member has become the primary.
    pub fn primaries(&self) -> u64 {
        self.primaries.load(Relaxed)
    }

    /// The takeovers by this member.
    pub fn takeovers(&self) -> Takeovers {
        *self.takeovers.lock().unpoisoned()
    }

    /// From here on the figures of the lanes are read so.
    pub fn read_lanes_by(&self, read: ReadMetrics) {
        *self.lanes.lock().unpoisoned() = Some(read);
    }

    /// The figures of the lanes, as they are now.
    pub fn lanes(&self) -> LaneFigures {
        let read = self.lanes.lock().unpoisoned().clone();
        read.map(|read| read()).unwrap_or_default()
    }
}
