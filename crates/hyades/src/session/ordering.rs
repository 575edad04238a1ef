//! A session's order: each transaction follows the one before it, whatever rows the two access.

use crate::logging::record::RecordKind;
use crate::logging::{LoggingProtocol, Needs};
use hyades_platform::broken;
use hyades_wal::Log;

/// What a transaction that is about to be logged follows in its session's order, if there is
/// something that is not durable.
#[inline(always)]
pub(super) fn unmet<'o>(log: Option<&Log>, order: &'o mut Option<Needs>) -> Option<&'o Needs> {
    let (Some(order), Some(log)) = (order, log) else { return None };
    if !order.is_empty() {
        // What is durable is there after every crash.
        order.forget_met(|lane| log.frontier().at(lane));
    }
    let is_followed = !order.is_empty() && !broken!(ForgetSessionOrder);
    is_followed.then_some(order)
}

/// Begins a call that is about to be logged, and has not run; it follows `order`, if that is given.
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
