//! The order in which clients run.

/// Clients with the most samples first, ties by number.
///
/// Long ones start early, so that threads finish together. Uploads are folded in this order.
pub fn longest_first(clients: &[usize], size: impl Fn(usize) -> usize) -> Vec<usize> {
    let mut order = clients.to_vec();
    order.sort_by_key(|&client| (std::cmp::Reverse(size(client)), client));
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_size_then_number() {
        let sizes = [5, 9, 5, 1];
        assert_eq!(longest_first(&[3, 2, 1, 0], |client| sizes[client]), [1, 0, 2, 3]);
    }
}
