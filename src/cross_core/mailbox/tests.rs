//! The owner's side of the mailbox, on one thread.

use std::iter;

use super::*;
use crate::limits::REVERSED_MAX;

/// A budget without a limit.
const ALL: usize = usize::MAX;

/// Returns an `Opened` in a pass with this budget.
fn opened(budget: usize) -> Opened {
    let mut opened = Opened::default();
    opened.begin_pass(budget);
    opened
}

/// Reverses urgent messages into FIFO order, as many as one pass may.
fn reverse(opened: &mut Opened, links: &[Link]) {
    opened.reverse(|index, link| links[index as usize].exchange(link));
}

/// Consumes the next message.
fn next(opened: &mut Opened, links: &[Link]) -> Option<u32> {
    let (index, _) = opened.next(|index| links[index as usize].get());
    (index != 0).then_some(index)
}

/// Consumes messages by the links of the nodes, and returns their indices.
fn met(opened: &mut Opened, mailbox: &Mailbox, links: &[Link]) -> Vec<u32> {
    let met = iter::from_fn(|| next(opened, links)).collect();
    opened.take_more(mailbox);
    met
}

fn depth_of(push: Push) -> u32 {
    match push {
        Push::Queued { depth, .. } => depth,
        Push::Closed => panic!("it is open"),
    }
}

#[test]
fn the_first_message_about_a_payload_is_known_as_that() {
    let (mailbox, links) = (Mailbox::default(), [(); 6].map(|()| Link::default()));
    let mut opened = opened(ALL);
    for round in 0..2 {
        let first = |index: u32, urgency| {
            let pushed = mailbox.push(index, &links[index as usize], urgency);
            matches!(pushed, Push::Queued { is_first_payload: true, .. })
        };
        assert!(!first(1, Urgency::Empty));
        assert!(!mailbox.keeps_awake(9, true), "no payload in round {round}");
        assert!(first(3, Urgency::CanWait) && mailbox.keeps_awake(9, true));
        assert!(!mailbox.keeps_awake(9, false), "a short sleep");
        assert!(!first(4, Urgency::CanWait) && !first(5, Urgency::Empty));
        assert!(!first(2, Urgency::Urgent));
        assert_eq!(mailbox.cancelled(), 4);
        opened.begin_pass(ALL);
        opened.take_more(&mailbox);
        assert!(!mailbox.keeps_awake(1, true), "all are taken");
        assert_eq!(met(&mut opened, &mailbox, &links), [5, 4, 3, 1, 2]);
    }
}

#[test]
fn the_owner_takes_all_messages_newest_first() {
    let (mailbox, links) = (Mailbox::default(), [(); 4].map(|()| Link::default()));
    let mut opened = opened(ALL);
    opened.take_more(&mailbox);
    assert!(opened.is_empty());
    for index in 1..4 {
        assert_eq!(
            mailbox.push(index, &links[index as usize], Urgency::CanWait),
            Push::Queued { depth: index, is_first_payload: index == 1 }
        );
    }
    assert_eq!((mailbox.depth(), mailbox.waiting().map(|kind| kind.first)), (3, [0, 3]));
    opened.take_more(&mailbox);
    assert!(opened.is_empty(), "it has been looked for");
    opened.begin_pass(ALL);
    opened.take_more(&mailbox);
    assert_eq!((opened.count(), opened.left()[1]), (3, Messages { first: 3, second: 2, count: 3 }));
    assert_eq!(met(&mut opened, &mailbox, &links), [3, 2, 1]);
    assert_eq!((opened.is_empty(), opened.count(), mailbox.depth()), (true, 0, 0));
}

#[test]
fn what_can_wait_waits_until_the_end_of_a_pass() {
    let (mailbox, links) = (Mailbox::default(), [(); 10].map(|()| Link::default()));
    let mut opened = opened(ALL);
    let push = |index: u32, urgency| _ = mailbox.push(index, &links[index as usize], urgency);
    (1..5).for_each(|index| push(index, Urgency::CanWait));
    (5..7).for_each(|index| push(index, Urgency::Urgent));
    opened.begin_pass(ALL);
    opened.take_more(&mailbox);
    reverse(&mut opened, &links);
    opened.hold_others();
    assert_eq!((met(&mut opened, &mailbox, &links), opened.holds_others()), (vec![5, 6], true));
    // Later messages of a kind are left until that kind is used up.
    (7..9).for_each(|index| push(index, Urgency::CanWait));
    opened.look_again();
    assert_eq!((opened.holds_others(), opened.left()[1].count), (false, 4));
    assert_eq!(met(&mut opened, &mailbox, &links), [4, 3, 2, 1]);
    // Urgent messages beyond the budget come last, after all others.
    (1..4).for_each(|index| push(index, Urgency::Urgent));
    opened.begin_pass(ALL);
    opened.take_more(&mailbox);
    reverse(&mut opened, &links);
    opened.hold_others();
    assert_eq!(next(&mut opened, &links), Some(1));
    opened.look_again();
    assert_eq!(met(&mut opened, &mailbox, &links), [8, 7, 2, 3]);
    // Without urgent messages, none is held.
    push(9, Urgency::CanWait);
    opened.begin_pass(ALL);
    opened.take_more(&mailbox);
    opened.hold_others();
    assert_eq!(met(&mut opened, &mailbox, &links), [9]);
}

/// Half of the budget is held if enough messages wait. The larger half of an odd budget alternates
/// between the kinds, so that neither starves with a budget of one.
#[test]
fn half_of_what_a_pass_may_meet_is_for_what_can_wait() {
    for (budget, others, rounds_up, first) in [
        (8, 9, false, 4),
        (8, 2, true, 6),
        (8, 0, true, 8),
        (7, 9, false, 4),
        (7, 9, true, 3),
        (1, 9, true, 0),
        (1, 9, false, 1),
    ] {
        let (mailbox, links) =
            (Mailbox::default(), (0..20).map(|_| Link::default()).collect::<Vec<_>>());
        let push = |index: u32, urgency| _ = mailbox.push(index, &links[index as usize], urgency);
        (1..=others).for_each(|index| push(index, Urgency::CanWait));
        (10..20).for_each(|index| push(index, Urgency::Urgent));
        let mut opened = opened(budget);
        opened.rounds_up = !rounds_up;
        opened.take_more(&mailbox);
        reverse(&mut opened, &links);
        opened.hold_others();
        assert_eq!(
            met(&mut opened, &mailbox, &links),
            (10..10 + first).collect::<Vec<_>>(),
            "{budget} of {others}"
        );
        opened.look_again();
        assert_eq!(met(&mut opened, &mailbox, &links).len() + first as usize, budget);
        opened.end_pass();
        assert_eq!(next(&mut opened, &links), None);
    }
}

/// A loop that alternates between a budget of one and of zero serves both kinds.
#[test]
fn a_budget_of_one_serves_both_kinds_by_turns() {
    let (mailbox, links) =
        (Mailbox::default(), (0..20).map(|_| Link::default()).collect::<Vec<_>>());
    let push = |index: u32, urgency| _ = mailbox.push(index, &links[index as usize], urgency);
    (1..10).for_each(|index| push(index, Urgency::CanWait));
    (10..20).for_each(|index| push(index, Urgency::Urgent));
    let (mut opened, mut kinds) = (opened(0), Vec::new());
    for budget in [1, 0, 1, 0, 1, 0, 1] {
        opened.begin_pass(budget);
        opened.take_more(&mailbox);
        reverse(&mut opened, &links);
        opened.hold_others();
        kinds.extend(met(&mut opened, &mailbox, &links));
        opened.look_again();
        kinds.extend(met(&mut opened, &mailbox, &links));
    }
    let urgent = kinds.iter().filter(|&&index| index >= 10).count();
    assert_eq!((kinds.len(), urgent), (4, 2), "{kinds:?}");
}

/// The backlog of one pass may be exactly the budget of the next one.
#[test]
fn a_pass_that_has_met_enough_knows_whether_it_leaves_any() {
    let (mailbox, links) = (Mailbox::default(), [(); 4].map(|()| Link::default()));
    let push = |index: u32| _ = mailbox.push(index, &links[index as usize], Urgency::CanWait);
    (1..3).for_each(push);
    let mut opened = opened(1);
    opened.take_more(&mailbox);
    assert_eq!(met(&mut opened, &mailbox, &links), [2]);
    push(3);
    opened.begin_pass(1);
    opened.take_more(&mailbox);
    assert_eq!((met(&mut opened, &mailbox, &links), opened.count()), (vec![1], 1));
}

/// FIFO order holds for any number of messages. Of a flood, a pass reverses a limited number, and
/// consumes none before all are reversed.
#[test]
fn urgent_messages_are_met_in_the_order_in_which_they_came() {
    for count in [0, 1, 2, 3, 4, 5, 64, 65, 300] {
        let (mailbox, links) =
            (Mailbox::default(), (0..=count).map(|_| Link::default()).collect::<Vec<_>>());
        let mut opened = opened(ALL);
        (1..=count)
            .for_each(|index| _ = mailbox.push(index, &links[index as usize], Urgency::Urgent));
        let (mut passes, mut order) = (0, vec![]);
        while passes == 0 || !opened.is_empty() {
            opened.begin_pass(ALL);
            opened.take_more(&mailbox);
            assert_eq!(opened.count() > 0, count > 0);
            reverse(&mut opened, &links);
            order = met(&mut opened, &mailbox, &links);
            passes += 1;
        }
        assert_eq!(order, (1..=count).collect::<Vec<_>>(), "in the last pass");
        assert_eq!(passes, (count as usize).div_ceil(REVERSED_MAX).max(1));
    }
}

/// The published count is never higher.
#[test]
fn a_flood_that_is_partly_reversed_is_counted_as_many() {
    let (mailbox, links) =
        (Mailbox::default(), (0..=2 * MANY).map(|_| Link::default()).collect::<Vec<_>>());
    (1..=2 * MANY)
        .for_each(|index| _ = mailbox.push(index, &links[index as usize], Urgency::Urgent));
    let mut opened = opened(ALL);
    opened.take_more(&mailbox);
    // Miri is slow: about a thousand times.
    for _ in 0..if cfg!(miri) { 3 } else { MANY } {
        opened.begin_pass(ALL);
        opened.reversible = 1;
        reverse(&mut opened, &links);
        assert_eq!(opened.count(), MANY);
    }
}

/// It holds whether or not the other kind was taken.
#[test]
fn a_kind_is_taken_once_in_a_pass() {
    let (mailbox, links) = (Mailbox::default(), [(); 4].map(|()| Link::default()));
    let mut opened = opened(ALL);
    let push = |index: u32, urgency| _ = mailbox.push(index, &links[index as usize], urgency);
    push(1, Urgency::CanWait);
    opened.take_more(&mailbox);
    assert_eq!(met(&mut opened, &mailbox, &links), [1]);
    push(2, Urgency::CanWait);
    push(3, Urgency::Urgent);
    opened.take_more(&mailbox);
    assert!(opened.is_empty(), "it has been looked for");
    opened.look_again();
    opened.take_more(&mailbox);
    assert_eq!(met(&mut opened, &mailbox, &links), [3], "which had not come before");
    opened.begin_pass(ALL);
    opened.take_more(&mailbox);
    assert_eq!(met(&mut opened, &mailbox, &links), [2]);
}

#[test]
fn a_closed_mailbox_refuses() {
    let (mailbox, link) = (Mailbox::default(), Link::default());
    assert_eq!((mailbox.is_closed(), mailbox.close()), (false, [Messages::default(); 2]));
    for urgency in [Urgency::Urgent, Urgency::CanWait] {
        assert_eq!(mailbox.push(1, &link, urgency), Push::Closed);
        let mut opened = opened(ALL);
        opened.take_more(&mailbox);
        assert!(opened.is_empty() && mailbox.is_closed() && !mailbox.keeps_awake(1, false));
        assert_eq!((mailbox.depth(), mailbox.waiting()), (0, [Messages::default(); 2]));
    }
}

#[test]
fn many_messages_or_an_urgent_one_keep_the_owner_awake() {
    let (mailbox, links) = (Mailbox::default(), [(); 3].map(|()| Link::default()));
    assert!(!mailbox.keeps_awake(2, false));
    assert_eq!(depth_of(mailbox.push(1, &links[0], Urgency::CanWait)), 1);
    assert!(!mailbox.keeps_awake(2, false) && mailbox.keeps_awake(1, false));
    assert_eq!(depth_of(mailbox.push(2, &links[1], Urgency::Urgent)), 1);
    assert_eq!(depth_of(mailbox.push(3, &links[2], Urgency::CanWait)), 2);
    assert!(mailbox.keeps_awake(9, false) && mailbox.is_urgent());
    assert_eq!(mailbox.depth(), 3);
    Opened::default().take_more(&mailbox);
    assert!(!mailbox.keeps_awake(1, false));
}

/// Every multiple counts, since a wake-up may fail.
#[test]
fn a_count_that_goes_round_passes_a_multiple_of_the_debt_as_often() {
    let (stack, mut last) = (Stack::default(), 0);
    for pushed in 1..3 * MESSAGES_COUNTED {
        let depth = depth_of(stack.push(1, &Link::default(), 0));
        assert_eq!(
            depth.is_multiple_of(DEBT_MAX),
            pushed.is_multiple_of(DEBT_MAX),
            "the {pushed}-th"
        );
        assert!(stack.depth() == pushed.min(MANY) && stack.depth() >= last);
        last = stack.depth();
    }
}

/// A count that is a lower bound does not become zero before the last message.
#[test]
fn many_that_were_taken_are_many_until_the_last() {
    let head = pack(MESSAGES_COUNTED - 1, 2, 3);
    let links = [Link::default(), Link::default(), Link::default(), Link(AtomicU32::new(1))];
    let mut opened = opened(ALL);
    opened.left = [Messages::default(), Messages::of(head)];
    let mut counts = vec![];
    while !opened.is_empty() {
        counts.push(opened.count());
        assert!(next(&mut opened, &links).is_some());
    }
    assert_eq!((counts, opened.count()), (vec![MANY; 3], 0));
}

#[test]
fn no_head_looks_closed() {
    for index in [INDEX_MAX, 1] {
        let stack = Stack { head: AtomicU64::new(pack(MESSAGES_COUNTED - 1, 1, INDEX_MAX)) };
        assert_eq!(depth_of(stack.push(index, &Link::default(), 0)), MANY);
    }
}
