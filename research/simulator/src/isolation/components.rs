//! Strongly connected components of a graph.

/// Strongly connected components (Tarjan, SIAM Journal on Computing 1972), without recursion: the
/// number of each node's component.
pub(super) fn components<E>(edges: &[Vec<(usize, E)>]) -> Vec<usize> {
    const NONE: usize = usize::MAX;
    let n = edges.len();
    let (mut index, mut low, mut component) = (vec![NONE; n], vec![0; n], vec![NONE; n]);
    let (mut stack, mut next, mut count) = (Vec::new(), 0, 0);
    for root in 0..n {
        if index[root] != NONE {
            continue;
        }
        let mut path = vec![(root, 0)];
        while let Some((at, edge)) = path.pop() {
            if edge == 0 {
                (index[at], low[at]) = (next, next);
                next += 1;
                stack.push(at);
            }
            if let Some((to, _)) = edges[at].get(edge) {
                path.push((at, edge + 1));
                if index[*to] == NONE {
                    path.push((*to, 0));
                } else if component[*to] == NONE {
                    low[at] = low[at].min(index[*to]);
                }
                continue;
            }
            if low[at] == index[at] {
                while let Some(member) = stack.pop() {
                    component[member] = count;
                    if member == at {
                        break;
                    }
                }
                count += 1;
            }
            if let Some((parent, _)) = path.last() {
                low[*parent] = low[*parent].min(low[at]);
            }
        }
    }
    component
}
