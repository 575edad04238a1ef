//! Traces of programs that ran on threads of the database.

use crate::program::Trace;
use hyades_platform::sync::Unpoisoned;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// The reads and writes of programs run as procedures, perhaps on other threads.
#[derive(Clone, Debug, Default)]
pub struct ProcedureTraces(Arc<Mutex<BTreeMap<u64, Trace>>>);

impl ProcedureTraces {
    fn all(&self) -> MutexGuard<'_, BTreeMap<u64, Trace>> {
        // A program that panics does not panic here.
        self.0.lock().unpoisoned()
    }

    /// Keeps the trace of a program.
    pub fn put(&self, id: u64, trace: Trace) {
        self.all().insert(id, trace);
    }

    /// Takes the trace of a program, if it ran as a procedure.
    pub fn take(&self, id: u64) -> Option<Trace> {
        self.all().remove(&id)
    }

    /// Drops all traces.
    pub fn clear(&self) {
        self.all().clear();
    }
}
