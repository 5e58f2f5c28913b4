//! Assignment of the values and gradients of a plan to buffers.

use crate::cpu::plan::{Back, GradientSlot, Op, Value, ValueId, ValuePlace};

/// Assigns shared buffers by the lifetime of their contents.
#[derive(Default)]
pub(crate) struct Slots {
    /// Channels times pixels of one group, for each slot.
    pub sizes: Vec<usize>,
    free: Vec<usize>,
}

impl Slots {
    fn take(&mut self, size: usize) -> usize {
        let best = self.free.iter().enumerate().min_by_key(|&(_, &slot)| self.sizes[slot].abs_diff(size));
        let slot = match best.map(|(i, _)| i) {
            Some(i) => self.free.swap_remove(i),
            None => {
                self.sizes.push(0);
                self.sizes.len() - 1
            }
        };
        self.sizes[slot] = self.sizes[slot].max(size);
        slot
    }

    /// Assigns a buffer to every value; returns the number of saved values.
    pub(crate) fn place_values(&mut self, ops: &[Op], values: &mut [Value], exit: Option<ValueId>) -> usize {
        let mut saved = vec![false; values.len()];
        for op in ops {
            for value in op.saves().into_iter().flatten() {
                saved[value] = true;
            }
        }
        saved[0] = true;
        let mut count = 0;
        for (value, saved) in values.iter_mut().zip(&saved) {
            if *saved {
                value.place = ValuePlace::Saved(count);
                count += 1;
            }
        }
        let last_use =
            |value: ValueId| ops.iter().rposition(|op| op.inputs().contains(&Some(value))).unwrap_or(usize::MAX);
        for (i, op) in ops.iter().enumerate() {
            let y = op.output();
            if !saved[y] {
                values[y].place = ValuePlace::Slot(self.take(values[y].channels * values[y].plane.area()));
            }
            for x in op.inputs().into_iter().flatten() {
                if let ValuePlace::Slot(slot) = values[x].place
                    && last_use(x) == i
                    && Some(x) != exit
                    && !self.free.contains(&slot)
                {
                    self.free.push(slot);
                }
            }
        }
        // The forward and backward passes never overlap: every slot is free again.
        self.free = (0..self.sizes.len()).collect();
        count
    }

    /// Assigns a slot to every gradient, and decides which steps write and which add. Returns the backward steps and
    /// the slot of the last value's gradient.
    pub(crate) fn place_gradients(&mut self, ops: &[Op], values: &mut [Value], exit: ValueId) -> (Vec<Back>, usize) {
        let size = |value: &Value| value.channels * value.gradient.area();
        let from_conv = |value: ValueId| ops.iter().any(|op| matches!(op, Op::Conv { y, .. } if *y == value));
        let mut slot_of: Vec<Option<usize>> = vec![None; values.len()];
        let exit_slot = self.take(size(&values[exit]));
        slot_of[exit] = Some(exit_slot);
        let mut back = Vec::new();
        for (index, op) in ops.iter().enumerate().rev() {
            let y = op.output();
            // A value without readers has no gradient and needs no step.
            let Some(d_y) = slot_of[y] else { continue };
            let mut to = [None, None];
            let inputs = op.inputs();
            if let Op::Add { a, b, .. } = *op
                && a != 0
                && b != 0
                && a != b
                && values[a].gradient == values[b].gradient
                && slot_of[a].is_none()
                && slot_of[b].is_none()
                && !from_conv(a)
                && !from_conv(b)
            {
                // Both inputs have the same gradient: they share one buffer until something is added to one of them.
                let slot = self.take(size(&values[a]));
                (slot_of[a], slot_of[b]) = (Some(slot), Some(slot));
                to[0] = Some(GradientSlot { slot, add: false, detour: None });
            } else {
                for (target, x) in to.iter_mut().zip(inputs) {
                    let Some(x) = x.filter(|&x| x != 0) else { continue };
                    let add = slot_of[x].is_some();
                    let slot = slot_of[x].unwrap_or_else(|| self.take(size(&values[x])));
                    slot_of[x] = Some(slot);
                    let detour = (add && !matches!(op, Op::Conv { .. })).then(|| self.take(size(&values[x])));
                    *target = Some(GradientSlot { slot, add, detour });
                }
            }
            back.push(Back { op: index, d_y, to });
            self.free.extend(to.iter().flatten().filter_map(|target| target.detour));
            slot_of[y] = None;
            if !slot_of.contains(&Some(d_y)) {
                self.free.push(d_y);
            }
        }
        (back, exit_slot)
    }
}
