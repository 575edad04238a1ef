//! The one table of sound pairs: which concurrency control runs under which protocol.

use super::LoggingProtocol;
use crate::concurrency::ConcurrencyControl;
use crate::concurrency::{no_wait::NoWait, silo::Silo};
use crate::logging::{none::NoLog, serial::Serial, taurus::Taurus};

/// `C: RunsUnder<P>` holds for the sound pairs; an engine of any other pair does not compile.
pub(crate) trait RunsUnder<P: LoggingProtocol>: ConcurrencyControl {}

impl RunsUnder<NoLog> for NoWait {}
impl RunsUnder<NoLog> for Silo {}
impl RunsUnder<Serial> for NoWait {}
impl RunsUnder<Serial> for Silo {}
impl RunsUnder<Taurus> for NoWait {}
impl RunsUnder<Taurus> for Silo {}
