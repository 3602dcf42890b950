//! Lateness in the course of the run: a long one must not end later than it began.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::client::{Client, Fate};
use crate::plan::Role;
use crate::verdict::{Lateness, empty_histogram, micros};

/// Stretches of equal length, from the first closing to the last.
const STRETCHES: u32 = 10;

/// How late the silent connections were closed that were closed in each stretch.
pub(crate) fn lateness(clients: &[Client], idle: Duration, late_limit: Duration) -> Vec<Lateness> {
    let closings: Vec<(Instant, Duration)> =
        clients.iter().filter_map(|client| closing(client, idle)).collect();
    let (Some(first), Some(last)) =
        (closings.iter().map(|&(at, _)| at).min(), closings.iter().map(|&(at, _)| at).max())
    else {
        return Vec::new();
    };
    let length = ((last - first) / STRETCHES).max(Duration::from_micros(1));
    let mut histograms = vec![empty_histogram(); STRETCHES as usize];
    for (at, late) in closings {
        let number = ((at - first).as_micros() / length.as_micros()).min(u128::from(STRETCHES) - 1);
        note(&mut histograms[usize::try_from(number).expect("less than ten")], late);
    }
    histograms.iter().map(|histogram| Lateness::of(histogram, late_limit)).collect()
}

fn note(histogram: &mut Histogram<u64>, late: Duration) {
    histogram.saturating_record(micros(late));
}

/// When a silent connection was closed, and how late that was.
fn closing(client: &Client, idle: Duration) -> Option<(Instant, Duration)> {
    match (&client.fate, client.role) {
        (Fate::Closed(at), Role::FallsSilent(_)) => {
            Some((*at, at.saturating_duration_since(client.last_sent? + idle)))
        }
        _ => None,
    }
}
