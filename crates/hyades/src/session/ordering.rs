//! A session's order: each transaction follows the previous transaction, whatever rows the two
//! access.

use crate::logging::record::RecordKind;
use crate::logging::{LoggingProtocol, Needs};
use hyades_platform::broken;
use hyades_wal::Log;

/// Returns the needs that a transaction about to be logged follows in its session's order, if any
/// need is not durable.
#[inline(always)]
pub(super) fn unmet<'o>(log: Option<&Log>, order: &'o mut Option<Needs>) -> Option<&'o Needs> {
    let (Some(order), Some(log)) = (order, log) else { return None };
    if !order.is_empty() {
        // Durable records survive every crash.
        order.forget_met(|lane| log.frontier().at(lane));
    }
    let is_followed = !order.is_empty() && !broken!(ForgetSessionOrder);
    is_followed.then_some(order)
}

/// Begins a call about to be logged, which has not run; the call follows `order`, if given.
pub(super) fn begin_call<P: LoggingProtocol>(
    protocol: &P,
    stamp: &mut P::TxnStamp,
    order: Option<&Needs>,
) {
    protocol.begin(stamp, RecordKind::Command);
    if let Some(order) = order {
        protocol.follow(stamp, order);
    }
}
