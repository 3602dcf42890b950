//! Tests the mailbox and the backlog on one thread.

use std::iter;

use super::*;
use crate::limits::REVERSED_MESSAGES_PER_TURN_MAX;

fn pack_head(depth: u32, second_index: u32, newest: u32) -> u64 {
    u64::from(second_index) << SECOND_NEWEST_SHIFT
        | u64::from(newest) << NEWEST_SHIFT
        | u64::from(depth)
}

const UNLIMITED: usize = usize::MAX;

fn refill_or_end_phase(backlog: &mut Backlog, mailbox: &Mailbox, links: &[MailboxLink]) -> bool {
    backlog.refill_or_end_phase(mailbox, |index, link| links[index as usize].replace(link))
}

fn consume_next(backlog: &mut Backlog, links: &[MailboxLink]) -> Option<u32> {
    let removed = backlog.remove_next_message(|index| (index, links[index as usize].get()));
    removed.map(|(index, _)| index)
}

fn consume_phase(backlog: &mut Backlog, mailbox: &Mailbox, links: &[MailboxLink]) -> Vec<u32> {
    let mut consumed = vec![];
    loop {
        consumed.extend(iter::from_fn(|| consume_next(backlog, links)));
        if !refill_or_end_phase(backlog, mailbox, links) {
            return consumed;
        }
    }
}

/// Returns the indices of the urgent and of the low-priority messages.
fn consume_pass(
    backlog: &mut Backlog,
    budget: usize,
    mailbox: &Mailbox,
    links: &[MailboxLink],
) -> [Vec<u32>; 2] {
    let has_urgent_messages = backlog.begin_pass(mailbox, budget);
    assert_eq!(has_urgent_messages, backlog.phase.is_urgent);
    let urgent = if has_urgent_messages { consume_phase(backlog, mailbox, links) } else { vec![] };
    assert!(!backlog.phase.is_urgent);
    [urgent, consume_phase(backlog, mailbox, links)]
}

fn queued_depth(outcome: PushOutcome) -> u32 {
    match outcome {
        PushOutcome::Queued { depth, .. } => depth,
        PushOutcome::Closed => panic!("the mailbox is closed"),
    }
}

#[test]
fn the_first_payload_message_is_flagged() {
    let (mailbox, links) = (Mailbox::default(), [(); 6].map(|()| MailboxLink::default()));
    let mut backlog = Backlog::default();
    for round in 0..2 {
        let has_set_payload_flag = |index: u32, has_payload| {
            let pushed = mailbox.low_priority.push(index, &links[index as usize], has_payload);
            matches!(pushed, PushOutcome::Queued { has_set_payload_flag: true, .. })
        };
        assert!(!has_set_payload_flag(1, false));
        assert!(!mailbox.must_not_sleep(9, true), "no payload in round {round}");
        assert!(has_set_payload_flag(3, true) && mailbox.must_not_sleep(9, true));
        assert!(!mailbox.must_not_sleep(9, false), "a short sleep");
        assert!(!has_set_payload_flag(4, true) && !has_set_payload_flag(5, false));
        let _ = mailbox.urgent.push(2, &links[2], false);
        assert_eq!(mailbox.low_priority.depth(), 4);
        let consumed = consume_pass(&mut backlog, UNLIMITED, &mailbox, &links);
        assert_eq!(consumed, [vec![2], vec![5, 4, 3, 1]]);
        assert!(!mailbox.must_not_sleep(1, true), "all are taken");
    }
}

#[test]
fn the_owner_takes_all_messages_newest_first() {
    let (mailbox, links) = (Mailbox::default(), [(); 4].map(|()| MailboxLink::default()));
    let mut backlog = Backlog::default();
    assert!(!backlog.begin_pass(&mailbox, UNLIMITED));
    assert!(!refill_or_end_phase(&mut backlog, &mailbox, &links) && backlog.is_empty());
    for index in 1..4 {
        assert_eq!(
            mailbox.low_priority.push(index, &links[index as usize], true),
            PushOutcome::Queued { depth: index, has_set_payload_flag: index == 1 }
        );
    }
    assert_eq!(
        (mailbox.depth(), mailbox.peek_messages().map(|list| list.first_index)),
        (3, [0, 3])
    );
    let is_taken = refill_or_end_phase(&mut backlog, &mailbox, &links);
    assert!(!is_taken && backlog.is_empty(), "the pass has begun without messages");
    assert!(!backlog.begin_pass(&mailbox, UNLIMITED));
    assert!(refill_or_end_phase(&mut backlog, &mailbox, &links));
    assert_eq!(
        (backlog.message_count(), backlog.ready_by_priority[0]),
        (3, MessageList { first_index: 3, second_index: 2, count: 3 })
    );
    assert_eq!(consume_phase(&mut backlog, &mailbox, &links), [3, 2, 1]);
    assert_eq!((backlog.is_empty(), backlog.message_count(), mailbox.depth()), (true, 0, 0));
}

#[test]
fn a_pass_without_messages_takes_no_later_message() {
    let (mailbox, links) = (Mailbox::default(), [(); 3].map(|()| MailboxLink::default()));
    let mut backlog = Backlog::default();
    let [push_urgent, push_low] = [&mailbox.urgent, &mailbox.low_priority]
        .map(|stack| |index: u32| _ = stack.push(index, &links[index as usize], false));
    push_urgent(1);
    assert!(backlog.begin_pass(&mailbox, UNLIMITED));
    assert!(refill_or_end_phase(&mut backlog, &mailbox, &links));
    assert_eq!(consume_next(&mut backlog, &links), Some(1));
    assert!(backlog.phase.is_urgent, "the pass is abandoned here");
    assert!(!backlog.begin_pass(&mailbox, UNLIMITED));
    push_low(2);
    assert!(!backlog.phase.is_urgent && !backlog.may_have_low_priority_messages());
    assert_eq!(consume_phase(&mut backlog, &mailbox, &links), []);
}

#[test]
fn low_priority_messages_wait_for_the_end_of_urgent_phase() {
    let (mailbox, links) = (Mailbox::default(), [(); 10].map(|()| MailboxLink::default()));
    let mut backlog = Backlog::default();
    let [push_urgent, push_low] = [&mailbox.urgent, &mailbox.low_priority]
        .map(|stack| |index: u32| _ = stack.push(index, &links[index as usize], false));
    (1..5).for_each(push_low);
    (5..7).for_each(push_urgent);
    assert!(backlog.begin_pass(&mailbox, UNLIMITED));
    assert_eq!(consume_next(&mut backlog, &links), None);
    assert!(refill_or_end_phase(&mut backlog, &mailbox, &links));
    assert_eq!(consume_next(&mut backlog, &links), Some(5));
    // The urgent message 7 waits for the next pass. The pass in progress still takes message 8.
    push_urgent(7);
    push_low(8);
    assert!(backlog.phase.is_urgent);
    assert_eq!(consume_phase(&mut backlog, &mailbox, &links), [6]);
    assert!(!backlog.phase.is_urgent && backlog.may_have_low_priority_messages());
    assert_eq!(consume_phase(&mut backlog, &mailbox, &links), [8, 4, 3, 2, 1]);
    assert!(!backlog.may_have_low_priority_messages());
    push_low(9);
    assert_eq!(consume_phase(&mut backlog, &mailbox, &links), [], "a phase takes messages once");
    assert_eq!(consume_pass(&mut backlog, UNLIMITED, &mailbox, &links), [vec![7], vec![9]]);
}

/// The larger half of an odd budget goes to each priority alternately, so that neither starves.
#[test]
fn half_of_the_budget_is_reserved_for_low_priority() {
    for (budget, low_count, last_odd_budget_favored_low, urgent_consumed) in [
        (8, 9, false, 4),
        (8, 2, true, 6),
        (8, 0, true, 8),
        (7, 9, false, 4),
        (7, 9, true, 3),
        (1, 9, true, 0),
        (1, 9, false, 1),
    ] {
        let (mailbox, links) = (Mailbox::default(), [(); 20].map(|()| MailboxLink::default()));
        let [push_urgent, push_low] = [&mailbox.urgent, &mailbox.low_priority]
            .map(|stack| |index: u32| _ = stack.push(index, &links[index as usize], false));
        (1..=low_count).for_each(push_low);
        (10..20).for_each(push_urgent);
        let mut backlog = Backlog::default();
        backlog.last_odd_budget_favored_low = !last_odd_budget_favored_low;
        let [urgent, low] = consume_pass(&mut backlog, budget, &mailbox, &links);
        assert_eq!(
            urgent,
            (10..10 + urgent_consumed).collect::<Vec<_>>(),
            "budget {budget}, {low_count} low-priority messages"
        );
        assert_eq!(low.len() + urgent_consumed as usize, budget);
    }
}

#[test]
fn budgets_of_one_and_zero_serve_both_priorities_in_turn() {
    let (mailbox, links) = (Mailbox::default(), [(); 20].map(|()| MailboxLink::default()));
    let [push_urgent, push_low] = [&mailbox.urgent, &mailbox.low_priority]
        .map(|stack| |index: u32| _ = stack.push(index, &links[index as usize], false));
    (1..10).for_each(push_low);
    (10..20).for_each(push_urgent);
    let (mut backlog, mut consumed) = (Backlog::default(), Vec::new());
    for budget in [1, 0, 1, 0, 1, 0, 1] {
        consumed.extend(consume_pass(&mut backlog, budget, &mailbox, &links).concat());
    }
    let urgent = consumed.iter().filter(|&&index| index >= 10).count();
    assert_eq!((consumed.len(), urgent), (4, 2), "{consumed:?}");
}

#[test]
fn a_pass_takes_messages_even_if_its_budget_is_spent() {
    let (mailbox, links) = (Mailbox::default(), [(); 4].map(|()| MailboxLink::default()));
    let push = |index: u32| _ = mailbox.low_priority.push(index, &links[index as usize], true);
    (1..3).for_each(push);
    let mut backlog = Backlog::default();
    assert_eq!(consume_pass(&mut backlog, 1, &mailbox, &links)[1], [2]);
    push(3);
    assert_eq!(consume_pass(&mut backlog, 1, &mailbox, &links)[1], [1]);
    assert_eq!(backlog.message_count(), 1);
}

/// A pass reverses a limited number of messages, and consumes no urgent message until all are
/// reversed.
#[test]
fn urgent_messages_are_consumed_in_fifo_order() {
    for count in [0, 1, 2, 3, 4, 5, 64, 65, 300] {
        let (mailbox, links) =
            (Mailbox::default(), (0..=count).map(|_| MailboxLink::default()).collect::<Vec<_>>());
        let mut backlog = Backlog::default();
        (1..=count).for_each(|index| {
            _ = mailbox.urgent.push(index, &links[index as usize], false);
        });
        let (mut passes, mut order) = (0, vec![]);
        while passes == 0 || !backlog.is_empty() {
            [order, _] = consume_pass(&mut backlog, UNLIMITED, &mailbox, &links);
            passes += 1;
        }
        assert_eq!(order, (1..=count).collect::<Vec<_>>(), "in the last pass");
        assert_eq!(passes, (count as usize).div_ceil(REVERSED_MESSAGES_PER_TURN_MAX).max(1));
    }
}

#[test]
fn a_count_is_capped_while_a_flood_is_reversed() {
    let (mailbox, links) = (
        Mailbox::default(),
        (0..=2 * FIRST_INEXACT_COUNT).map(|_| MailboxLink::default()).collect::<Vec<_>>(),
    );
    (1..=2 * FIRST_INEXACT_COUNT).for_each(|index| {
        _ = mailbox.urgent.push(index, &links[index as usize], false);
    });
    let mut backlog = Backlog::default();
    backlog.urgent_newest_first = mailbox.urgent.take_all();
    for _ in 0..if cfg!(miri) { 3 } else { FIRST_INEXACT_COUNT } {
        backlog.reverse_urgent(1, |index, link| links[index as usize].replace(link));
        assert_eq!(backlog.message_count(), FIRST_INEXACT_COUNT);
    }
}

#[test]
fn a_closed_mailbox_refuses_messages() {
    let (mailbox, link) = (Mailbox::default(), MailboxLink::default());
    assert!(!mailbox.is_closed());
    mailbox.close();
    for stack in [&mailbox.urgent, &mailbox.low_priority] {
        assert_eq!(stack.push(1, &link, false), PushOutcome::Closed);
        let mut backlog = Backlog::default();
        assert_eq!(consume_pass(&mut backlog, UNLIMITED, &mailbox, &[]).concat(), []);
        assert!(backlog.is_empty() && mailbox.is_closed() && !mailbox.must_not_sleep(1, false));
        assert_eq!((mailbox.depth(), mailbox.peek_messages()), (0, [MessageList::default(); 2]));
    }
}

#[test]
fn many_low_or_one_urgent_message_keep_the_owner_awake() {
    let (mailbox, links) = (Mailbox::default(), [(); 4].map(|()| MailboxLink::default()));
    assert!(!mailbox.must_not_sleep(2, false));
    assert_eq!(queued_depth(mailbox.low_priority.push(1, &links[1], true)), 1);
    assert!(!mailbox.must_not_sleep(2, false) && mailbox.must_not_sleep(1, false));
    assert_eq!(queued_depth(mailbox.urgent.push(2, &links[2], false)), 1);
    assert_eq!(queued_depth(mailbox.low_priority.push(3, &links[3], true)), 2);
    assert!(mailbox.must_not_sleep(9, false) && mailbox.urgent.has_messages());
    assert_eq!(mailbox.depth(), 3);
    let _ = consume_pass(&mut Backlog::default(), UNLIMITED, &mailbox, &links);
    assert!(!mailbox.must_not_sleep(1, false));
}

#[test]
fn an_overflowed_count_still_reaches_multiples_of_wake_depth() {
    let (stack, mut last) = (Stack::default(), 0);
    for pushed in 1..3 * MESSAGE_COUNT_OVERFLOW {
        let depth = queued_depth(stack.push(1, &MailboxLink::default(), false));
        assert_eq!(
            depth.is_multiple_of(WAKE_AT_QUEUED_MESSAGES),
            pushed.is_multiple_of(WAKE_AT_QUEUED_MESSAGES),
            "message {pushed}"
        );
        assert!(stack.depth() == pushed.min(FIRST_INEXACT_COUNT) && stack.depth() >= last);
        last = stack.depth();
    }
}

#[test]
fn an_inexact_count_stays_until_the_last_message() {
    let head = pack_head(MESSAGE_COUNT_OVERFLOW - 1, 2, 3);
    let links = [0, 0, 0, 1].map(|link| MailboxLink(AtomicU32::new(link)));
    let mut backlog = Backlog::default();
    backlog.phase = MessagePhase::low_priority(UNLIMITED);
    backlog.ready_by_priority = [MessageList::from_head(head), MessageList::default()];
    let mut counts = vec![];
    while !backlog.is_empty() {
        counts.push(backlog.message_count());
        assert!(consume_next(&mut backlog, &links).is_some());
    }
    assert_eq!((counts, backlog.message_count()), (vec![FIRST_INEXACT_COUNT; 3], 0));
}

#[test]
fn no_valid_head_equals_closed() {
    for index in [INDEX_MAX, 1] {
        let stack =
            Stack { head: AtomicU64::new(pack_head(MESSAGE_COUNT_OVERFLOW - 1, 1, INDEX_MAX)) };
        assert_eq!(
            queued_depth(stack.push(index, &MailboxLink::default(), false)),
            FIRST_INEXACT_COUNT
        );
    }
}

#[test]
fn a_turn_request_keeps_the_owner_awake_until_it_takes_the_messages() {
    let (mailbox, links) = (Mailbox::default(), [(); 3].map(|()| MailboxLink::default()));
    let mut backlog = Backlog::default();
    mailbox.request_turn();
    assert!(mailbox.must_not_sleep(2, false) && !mailbox.is_empty());
    assert_eq!((mailbox.depth(), mailbox.peek_messages()), (0, [MessageList::default(); 2]));
    assert_eq!(consume_pass(&mut backlog, UNLIMITED, &mailbox, &links), [vec![], vec![]]);
    assert!(!mailbox.must_not_sleep(2, false) && mailbox.is_empty());
    let push = |index: u32| mailbox.urgent.push(index, &links[index as usize], false);
    assert_eq!(queued_depth(push(1)), 1);
    mailbox.request_turn();
    assert_eq!(queued_depth(push(2)), 2);
    mailbox.request_turn();
    assert_eq!(consume_pass(&mut backlog, UNLIMITED, &mailbox, &links), [vec![1, 2], vec![]]);
    mailbox.close();
    mailbox.request_turn();
    assert!(mailbox.is_closed() && !mailbox.must_not_sleep(2, false));
}
