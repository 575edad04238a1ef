//! The consistency conditions 1 to 12 (clause 3.3.2), each a function of its own over a
//! [`Snapshot`]. They hold after any number of transactions, however the run ended.

use super::snapshot::{CustomerFacts, DistrictFacts, Snapshot};
use crate::Violation;
use std::collections::HashMap;

/// Maximum number of violations reported per condition.
const AT_MOST: usize = 10;

type Condition = fn(&Snapshot) -> Vec<String>;

/// All conditions, in their order.
const CONDITIONS: [Condition; 12] = [
    warehouse_ytd_is_sum_of_districts,
    next_order_is_above_the_last,
    new_orders_have_no_gap,
    order_line_counts_add_up,
    open_orders_have_no_carrier,
    each_order_has_its_lines,
    delivered_lines_have_a_date,
    warehouse_ytd_is_sum_of_history,
    district_ytd_is_sum_of_history,
    balance_is_deliveries_less_payments,
    orders_less_new_orders_are_delivered,
    balance_and_payments_are_deliveries,
];

/// Checks all twelve conditions.
pub fn check(snapshot: &Snapshot) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (condition, number) in CONDITIONS.iter().zip(1..) {
        let all = condition(snapshot);
        let more = all.len().saturating_sub(AT_MOST);
        let found = all.into_iter().take(AT_MOST);
        violations.extend(found.map(|text| Violation { condition: number, text }));
        if more > 0 {
            violations.push(Violation { condition: number, text: format!("and {more} more") });
        }
    }
    violations
}

/// Formats cents as an amount with two decimals.
fn money(cents: i64) -> String {
    let sign = if cents < 0 { "-" } else { "" };
    format!("{sign}{}.{:02}", cents.unsigned_abs() / 100, cents.unsigned_abs() % 100)
}

/// Applies `check` to every district and collects the findings.
fn districts(
    snapshot: &Snapshot,
    check: impl Fn(&DistrictFacts, &mut dyn FnMut(String)),
) -> Vec<String> {
    let mut found = Vec::new();
    for district in &snapshot.districts {
        let place = format!("warehouse {}, district {}: ", district.w, district.d);
        check(district, &mut |text| found.push(format!("{place}{text}")));
    }
    found
}

/// 3.3.2.1: W_YTD = sum(D_YTD).
pub fn warehouse_ytd_is_sum_of_districts(snapshot: &Snapshot) -> Vec<String> {
    let mut found = Vec::new();
    for &(w, ytd) in &snapshot.warehouses {
        let of_w = snapshot.districts.iter().filter(|district| district.w == w);
        let sum = of_w.map(|district| district.ytd).sum::<i64>();
        if ytd != sum {
            let (ytd, sum) = (money(ytd), money(sum));
            found.push(format!("warehouse {w}: W_YTD is {ytd}, its districts' D_YTD add to {sum}"));
        }
    }
    found
}

/// 3.3.2.2: D_NEXT_O_ID - 1 = max(O_ID) = max(NO_O_ID), the latter if there are new-orders.
pub fn next_order_is_above_the_last(snapshot: &Snapshot) -> Vec<String> {
    districts(snapshot, |district, report| {
        let last = district.next_order - 1;
        let orders = district.orders.last().map_or(0, |order| order.id);
        if orders != last {
            report(format!("D_NEXT_O_ID - 1 is {last}, the largest O_ID {orders}"));
        }
        if let Some(&new_orders) = district.new_orders.last()
            && new_orders != last
        {
            report(format!("D_NEXT_O_ID - 1 is {last}, the largest NO_O_ID {new_orders}"));
        }
    })
}

/// 3.3.2.3: max(NO_O_ID) - min(NO_O_ID) + 1 = count of new-orders.
pub fn new_orders_have_no_gap(snapshot: &Snapshot) -> Vec<String> {
    districts(snapshot, |district, report| {
        if let (Some(first), Some(last)) = (district.new_orders.first(), district.new_orders.last())
        {
            let (span, count) = (last - first + 1, district.new_orders.len());
            if span as usize != count {
                report(format!("NO_O_ID spans {span} numbers, there are {count} new-orders"));
            }
        }
    })
}

/// 3.3.2.4: sum(O_OL_CNT) = count of order lines.
pub fn order_line_counts_add_up(snapshot: &Snapshot) -> Vec<String> {
    districts(snapshot, |district, report| {
        let sum: i64 = district.orders.iter().map(|order| order.lines as i64).sum();
        let count: i64 = district.lines.iter().map(|lines| lines.count as i64).sum();
        if sum != count {
            report(format!("O_OL_CNT adds to {sum}, there are {count} order lines"));
        }
    })
}

/// 3.3.2.5: O_CARRIER_ID is null if and only if the order has a new-order row.
pub fn open_orders_have_no_carrier(snapshot: &Snapshot) -> Vec<String> {
    districts(snapshot, |district, report| {
        for order in &district.orders {
            let open = district.new_orders.binary_search(&order.id).is_ok();
            match (order.carrier, open) {
                (Some(carrier), true) => {
                    let id = order.id;
                    report(format!("order {id} has carrier {carrier} and yet a new-order row"))
                }
                (None, false) => {
                    report(format!("order {} has no carrier and no new-order row", order.id))
                }
                _ => {}
            }
        }
    })
}

/// 3.3.2.6: O_OL_CNT = count of the order's lines.
pub fn each_order_has_its_lines(snapshot: &Snapshot) -> Vec<String> {
    districts(snapshot, |district, report| {
        for order in &district.orders {
            let (told, count) = (order.lines, district.lines_of(order.id).count);
            if told != count {
                report(format!("order {}: O_OL_CNT is {told}, it has {count} lines", order.id));
            }
        }
    })
}

/// 3.3.2.7: OL_DELIVERY_D is null if and only if the order has no carrier.
pub fn delivered_lines_have_a_date(snapshot: &Snapshot) -> Vec<String> {
    districts(snapshot, |district, report| {
        for order in &district.orders {
            let lines = district.lines_of(order.id);
            let expected = if order.carrier.is_some() { lines.count } else { 0 };
            if lines.delivered != expected {
                let (id, dated) = (order.id, lines.delivered);
                report(format!("order {id}: {dated} lines have a delivery date, not {expected}"));
            }
        }
    })
}

/// 3.3.2.8: W_YTD = sum(H_AMOUNT).
pub fn warehouse_ytd_is_sum_of_history(snapshot: &Snapshot) -> Vec<String> {
    let mut paid: HashMap<i32, i64> = HashMap::new();
    for ((w, _), amount) in &snapshot.paid_in_district {
        *paid.entry(*w).or_default() += amount;
    }
    let mut found = Vec::new();
    for &(w, ytd) in &snapshot.warehouses {
        let sum = paid.get(&w).copied().unwrap_or(0);
        if ytd != sum {
            let (ytd, sum) = (money(ytd), money(sum));
            found.push(format!("warehouse {w}: W_YTD is {ytd}, H_AMOUNT adds to {sum}"));
        }
    }
    found
}

/// 3.3.2.9: D_YTD = sum(H_AMOUNT).
pub fn district_ytd_is_sum_of_history(snapshot: &Snapshot) -> Vec<String> {
    districts(snapshot, |district, report| {
        let sum = snapshot.paid_in_district.get(&(district.w, district.d)).copied().unwrap_or(0);
        if district.ytd != sum {
            report(format!("D_YTD is {}, H_AMOUNT adds to {}", money(district.ytd), money(sum)));
        }
    })
}

/// The sum of OL_AMOUNT over each customer's delivered lines.
fn delivered_amounts(district: &DistrictFacts) -> HashMap<i32, i64> {
    let mut amounts = HashMap::new();
    for order in &district.orders {
        *amounts.entry(order.customer).or_default() += district.lines_of(order.id).delivered_amount;
    }
    amounts
}

/// Applies `check` to every customer and the sum of its delivered lines.
fn customers(
    snapshot: &Snapshot,
    check: impl Fn(&DistrictFacts, &CustomerFacts, i64) -> Option<String>,
) -> Vec<String> {
    districts(snapshot, |district, report| {
        let amounts = delivered_amounts(district);
        for customer in &district.customers {
            let delivered = amounts.get(&customer.id).copied().unwrap_or(0);
            if let Some(text) = check(district, customer, delivered) {
                report(format!("customer {}: {text}", customer.id));
            }
        }
    })
}

/// 3.3.2.10: C_BALANCE = sum(OL_AMOUNT) of delivered lines - sum(H_AMOUNT).
pub fn balance_is_deliveries_less_payments(snapshot: &Snapshot) -> Vec<String> {
    customers(snapshot, |district, customer, delivered| {
        let key = (district.w, district.d, customer.id);
        let paid = snapshot.paid_by_customer.get(&key).copied().unwrap_or(0);
        (customer.balance != delivered - paid).then(|| {
            let [balance, delivered, paid] = [customer.balance, delivered, paid].map(money);
            format!("C_BALANCE is {balance}, not {delivered} delivered less {paid} paid")
        })
    })
}

/// 3.3.2.11: orders less new-orders are the delivered orders. The specification has 2,100 for a
/// freshly populated district; each later delivery is counted in its customer's C_DELIVERY_CNT.
pub fn orders_less_new_orders_are_delivered(snapshot: &Snapshot) -> Vec<String> {
    districts(snapshot, |district, report| {
        let (orders, open) = (district.orders.len() as i64, district.new_orders.len() as i64);
        let since: i64 = district.customers.iter().map(|c| c.deliveries as i64).sum();
        let delivered = snapshot.delivered_at_first as i64 + since;
        if orders - open != delivered {
            report(format!("{orders} orders less {open} new-orders, but {delivered} delivered"));
        }
    })
}

/// 3.3.2.12: C_BALANCE + C_YTD_PAYMENT = sum(OL_AMOUNT) of delivered lines.
pub fn balance_and_payments_are_deliveries(snapshot: &Snapshot) -> Vec<String> {
    customers(snapshot, |_, customer, delivered| {
        (customer.balance + customer.ytd_payment != delivered).then(|| {
            let (balance, paid) = (money(customer.balance), money(customer.ytd_payment));
            let delivered = money(delivered);
            format!("C_BALANCE {balance} and C_YTD_PAYMENT {paid} do not add to {delivered}")
        })
    })
}
