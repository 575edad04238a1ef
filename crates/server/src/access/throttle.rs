//! Slows down the guessing of passwords.

use hyades_platform::sync::Unpoisoned;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Failures from an address count for so long.
const WINDOW: Duration = Duration::from_secs(60);

/// Up to this number of failures in the window have no consequence.
const FREE: u32 = 10;

/// The delay after the first failure beyond `FREE`; the delay doubles with each further failure.
const FIRST_DELAY: Duration = Duration::from_millis(100);

/// The longest delay.
const LONGEST_DELAY: Duration = Duration::from_secs(5);

/// Most addresses to remember. Beyond the limit, first addresses whose time has passed are removed,
/// then addresses with the fewest failures.
const MOST_ADDRESSES: usize = 4_096;

/// The source of an attempt: an address, or the 64 leading bits, for a network of version 6
/// assigned as a whole. `None` if the text is no address with a port.
pub fn source(address: &str) -> Option<IpAddr> {
    match address.parse::<SocketAddr>().ok()?.ip().to_canonical() {
        IpAddr::V6(own) => {
            let [a, b, c, d, ..] = own.segments();
            Some(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into())
        }
        own => Some(own),
    }
}

/// The failures of an address since a time.
struct Failures {
    since: Instant,
    count: u32,
}

/// Failed attempts to log in, by address.
#[derive(Default)]
pub struct Throttle {
    addresses: Mutex<HashMap<IpAddr, Failures>>,
}

impl Throttle {
    /// How long the next attempt from this address has to wait.
    pub fn delay(&self, address: IpAddr, now: Instant) -> Duration {
        let addresses = self.addresses.lock().unpoisoned();
        match addresses.get(&address) {
            Some(failures)
                if now.saturating_duration_since(failures.since) < WINDOW
                    && failures.count >= FREE =>
            {
                let doublings = (failures.count - FREE).min(16);
                (FIRST_DELAY * (1 << doublings)).min(LONGEST_DELAY)
            }
            _ => Duration::ZERO,
        }
    }

    /// An attempt has failed.
    pub fn failed(&self, address: IpAddr, now: Instant) {
        let mut addresses = self.addresses.lock().unpoisoned();
        if addresses.len() >= MOST_ADDRESSES && !addresses.contains_key(&address) {
            let is_young =
                |failures: &Failures| now.saturating_duration_since(failures.since) < WINDOW;
            addresses.retain(|_, failures| is_young(failures));
            let least = addresses.values().map(|failures| failures.count).min().unwrap_or(0);
            if addresses.len() >= MOST_ADDRESSES {
                addresses.retain(|_, failures| failures.count > least);
            }
        }
        let failures = addresses.entry(address).or_insert(Failures { since: now, count: 0 });
        if now.saturating_duration_since(failures.since) >= WINDOW {
            *failures = Failures { since: now, count: 0 };
        }
        failures.count = failures.count.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));

    #[test]
    fn the_eleventh_failure_in_a_minute_costs_time() {
        let (throttle, start) = (Throttle::default(), Instant::now());
        for _ in 0..FREE {
            assert_eq!(throttle.delay(A, start), Duration::ZERO);
            throttle.failed(A, start);
        }
        let mut delays = Vec::new();
        for _ in 0..8 {
            delays.push(throttle.delay(A, start).as_millis());
            throttle.failed(A, start);
        }
        assert_eq!(delays, [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]);
        let other = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));
        assert_eq!(throttle.delay(other, start), Duration::ZERO);
        let later = start + WINDOW;
        assert_eq!(throttle.delay(A, later), Duration::ZERO);
        throttle.failed(A, later);
        assert_eq!(throttle.delay(A, later), Duration::ZERO, "the count has begun anew");
    }

    #[test]
    fn a_network_is_one_source() {
        assert_eq!(source("10.0.0.1:7"), Some(A));
        assert_eq!(source("[::ffff:10.0.0.1]:7"), Some(A));
        assert_eq!(source("[2001:db8::1]:7"), source("[2001:db8::2:3]:8"));
        assert_ne!(source("[2001:db8::1]:7"), source("[2001:db8:0:1::1]:7"));
        assert_eq!(source("nothing"), None);
    }

    /// An attacker with many addresses takes no memory for each.
    #[test]
    fn few_addresses_are_remembered() {
        let (throttle, now) = (Throttle::default(), Instant::now());
        for _ in 0..FREE {
            throttle.failed(A, now);
        }
        for n in 0..3 * MOST_ADDRESSES as u32 {
            throttle.failed(IpAddr::V4(n.into()), now);
        }
        assert!(throttle.addresses.lock().unwrap().len() <= MOST_ADDRESSES);
        assert!(throttle.delay(A, now) > Duration::ZERO, "the worst one is not forgotten");
    }
}
