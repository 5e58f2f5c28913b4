//! The kernels of text models, against plain formulas and finite differences.

use fedelity_kernels::attention::{self, Attention, AttentionGradient, AttentionInputs, Drop, TokenRows, TokenRowsMut};
use fedelity_kernels::layer_norm::LayerNorm;
use fedelity_kernels::lstm::{LstmGradient, LstmStep};
use fedelity_kernels::{Isa, dropout, embedding, gelu, layer_norm, lstm};
use proptest::prelude::*;

use crate::common::*;
use crate::reference::text as reference;

/// Runs `f` with every instruction set and checks that all give the same bits.
fn everywhere(mut f: impl FnMut(Isa) -> Vec<f32>) -> Vec<f32> {
    let mut results = Isa::available().into_iter().map(&mut f);
    let first = results.next().unwrap_or_default();
    assert!(results.all(|other| other == first), "instruction sets differ");
    first
}

proptest! {
    #![proptest_config(cases(60))]

    #[test]
    fn gelu_and_its_gradient(len in 1usize..300, size in 0.1f64..8.0, seed in any::<u64>()) {
        let mut random = Random::new(seed);
        let x: Vec<f32> = random.vector(len).iter().map(|v| (v * size) as f32).collect();
        let d = single(&random.vector(len));
        let y = everywhere(|isa| {
            let mut y = vec![CANARY; len];
            gelu::forward(isa, &mut y, &x);
            y
        });
        let expected: Vec<f64> = x.iter().map(|&x| reference::gelu(f64::from(x))).collect();
        close(&double(&y), &expected, "gelu")?;
        let both = everywhere(|isa| {
            let (mut x, mut d) = (x.clone(), d.clone());
            gelu::backward(isa, &mut x, &mut d);
            [x, d].concat()
        });
        prop_assert_eq!(&both[..len], &y[..]);
        let slope = |(x, d): (&f32, &f32)| f64::from(*d) * reference::gelu_derivative(f64::from(*x));
        close(&double(&both[len..]), &x.iter().zip(&d).map(slope).collect::<Vec<_>>(), "gradient of gelu")?;
        // An element's result does not depend on its position.
        let mut alone = [CANARY];
        gelu::forward(Isa::detect(), &mut alone, &x[len - 1..]);
        prop_assert_eq!(alone[0], y[len - 1]);
    }

    #[test]
    fn layer_norm_and_its_gradient(
        rows in 1usize..9, width in 1usize..130, eps in prop::sample::select(vec![1e-12, 1e-5]), seed in any::<u64>(),
    ) {
        let mut random = Random::new(seed);
        let (x, d_y) = (random.vector(rows * width), random.vector(rows * width));
        let (gamma, beta) = (random.vector(width), random.vector(width));
        let (old_gamma, old_beta) = (random.vector(width), random.vector(width));
        let (xs, gammas, betas) = (single(&x), single(&gamma), single(&beta));
        let eps32 = eps as f32;
        let mut stats = vec![0.0; 2 * rows];
        let y = everywhere(|isa| {
            let mut y = vec![CANARY; rows * width];
            let norm = LayerNorm { gamma: &gammas, beta: &betas, eps: eps32 };
            layer_norm::forward(isa, norm, &mut y, &mut stats, &xs);
            y
        });
        let expected: Vec<f64> =
            x.chunks(width).flat_map(|x| reference::layer_norm(x, &gamma, &beta, f64::from(eps32))).collect();
        // Very narrow rows often have nearly equal values, which have no meaningful direction.
        prop_assume!(width > 2);
        close(&double(&y), &expected, "layer norm")?;
        let (mut d_x, mut d_gamma, mut d_beta) = (Vec::new(), old_gamma.clone(), old_beta.clone());
        for (d_y, x) in d_y.chunks(width).zip(x.chunks(width)) {
            let (d, g, b) = reference::layer_norm_backward(d_y, x, &gamma, f64::from(eps32));
            d_x.extend(d);
            d_gamma.iter_mut().zip(g).for_each(|(sum, g)| *sum += g);
            d_beta.iter_mut().zip(b).for_each(|(sum, b)| *sum += b);
        }
        let found = everywhere(|isa| {
            let (mut d, mut d_gamma, mut d_beta) = (single(&d_y), single(&old_gamma), single(&old_beta));
            layer_norm::backward(isa, &mut d, Some((&mut d_gamma, &mut d_beta)), &xs, &stats, &gammas);
            [d, d_gamma, d_beta].concat()
        });
        close(&double(&found[..rows * width]), &d_x, "gradient of the rows")?;
        close(&double(&found[rows * width..]), &[d_gamma, d_beta].concat(), "gradient of scale and shift")?;
        let mut d = single(&d_y);
        layer_norm::backward(Isa::detect(), &mut d, None, &xs, &stats, &gammas);
        prop_assert_eq!(&d[..], &found[..rows * width]);
    }

    #[test]
    fn attention_and_its_gradient(
        heads in 1usize..4, size in 1usize..19, queries in 1usize..20, more in 0usize..20, p in prop::option::of(0.05f32..0.6),
        seed in any::<u64>(),
    ) {
        let mut random = Random::new(seed);
        let tokens = queries + more;
        let shape = Attention { heads, size, queries, tokens };
        let width = heads * size;
        // Queries have their own buffer; keys and values share rows, with a gap.
        let (q, kv) = (random.vector(queries * width), random.vector(tokens * (2 * width + 3)));
        let (qs, kvs, step) = (single(&q), single(&kv), 2 * width + 3);
        let drop = p.map(|p| Drop { p, key: seed ^ 5 });
        let d_out = random.vector(queries * width);
        let isa = Isa::detect();
        let (mut context, mut probabilities) = (vec![CANARY; queries * width], vec![CANARY; shape.probabilities()]);
        let mut scratch = vec![CANARY; shape.scratch()];
        let rows = |data, step| TokenRows { data, step };
        let (k, v) = (rows(&kvs[..], step), rows(&kvs[width..], step));
        let inputs = AttentionInputs { shape, q: rows(&qs, width), k, v, drop };
        attention::forward(isa, &inputs, &mut context, &mut probabilities, &mut scratch);

        // Dropped probabilities are those that become 0; the finite differences below drop the same ones.
        let keep: Vec<Vec<f64>> = (0..heads)
            .map(|h| match drop {
                None => vec![1.0; queries * tokens],
                Some(drop) => {
                    let mut kept = vec![0.0; queries * tokens];
                    let key = drop.key.wrapping_add((h as u64).wrapping_mul(0xd1b5_4a32_d192_ed03));
                    dropout::forward(isa, &mut kept, &vec![1.0; queries * tokens], drop.p, key);
                    double(&kept)
                }
            })
            .collect();
        let plain = |q: &[f64], kv: &[f64]| -> (Vec<f64>, Vec<f64>) {
            let (mut context, mut all) = (vec![0.0; queries * width], Vec::new());
            for (h, keep) in keep.iter().enumerate() {
                let part = |x: &[f64], n: usize, step: usize, from: usize| -> Vec<Vec<f64>> {
                    (0..n).map(|i| x[i * step + from + h * size..][..size].to_vec()).collect()
                };
                let (out, p) = reference::attention(
                    &part(q, queries, width, 0), &part(kv, tokens, step, 0), &part(kv, tokens, step, width), keep,
                );
                for (i, row) in out.iter().enumerate() {
                    context[i * width + h * size..][..size].copy_from_slice(row);
                }
                all.extend(p);
            }
            (context, all)
        };
        let (expected, p) = plain(&q, &kv);
        close(&double(&context), &expected, "context")?;
        close(&double(&probabilities), &p, "probabilities")?;

        let (mut d_q, mut d_kv) = (vec![CANARY; q.len()], vec![CANARY; kv.len()]);
        let gradient = AttentionGradient {
            d_q: TokenRowsMut { data: &mut d_q, step: width },
            d_kv: TokenRowsMut { data: &mut d_kv, step },
            values: width,
            d_context: &single(&d_out),
            probabilities: &probabilities,
        };
        attention::backward(isa, &inputs, gradient, &mut scratch);
        let gaps = d_kv.chunks(step).flat_map(|row| &row[2 * width..]);
        prop_assert!(gaps.into_iter().all(|v| *v == CANARY), "wrote past the values");
        let loss = |q: &[f64], kv: &[f64]| plain(q, kv).0.iter().zip(&d_out).map(|(a, b)| a * b).sum::<f64>();
        let slope = |at: usize, in_q: bool| {
            let moved = |by: f64| {
                let (mut q, mut kv) = (q.clone(), kv.clone());
                if in_q { q[at] += by } else { kv[at] += by }
                loss(&q, &kv)
            };
            (moved(1e-5) - moved(-1e-5)) / 2e-5
        };
        for _ in 0..6 {
            let at = (random.bits() % q.len() as u64) as usize;
            let (found, expected) = (f64::from(d_q[at]), slope(at, true));
            prop_assert!((found - expected).abs() < 2e-4, "query {at}: {found}, not {expected}");
            let (t, c) = ((random.bits() % tokens as u64) as usize, (random.bits() % (2 * width) as u64) as usize);
            let at = t * step + c;
            let (found, expected) = (f64::from(d_kv[at]), slope(at, false));
            prop_assert!((found - expected).abs() < 2e-4, "key or value {at}: {found}, not {expected}");
        }
    }

    #[test]
    fn tables(rows in 1usize..30, width in 1usize..40, tokens in 1usize..60, seed in any::<u64>()) {
        let mut random = Random::new(seed);
        let (table, d_y) = (single(&random.vector(rows * width)), single(&random.vector(tokens * width)));
        let ids: Vec<u32> = (0..tokens).map(|_| (random.bits() % rows as u64) as u32).collect();
        let mut y = vec![CANARY; tokens * width];
        embedding::gather(&mut y, &table, &ids, width);
        let mut twice = y.clone();
        embedding::add(&mut twice, &table, ids.iter().copied(), width);
        let mut expected = double(&table);
        let mut d_table = table.clone();
        embedding::scatter(&mut d_table, &d_y, ids.iter().copied(), width);
        for (t, &id) in ids.iter().enumerate() {
            for c in 0..width {
                let x = table[id as usize * width + c];
                prop_assert_eq!(y[t * width + c], x);
                prop_assert_eq!(twice[t * width + c], x + x);
                expected[id as usize * width + c] += f64::from(d_y[t * width + c]);
            }
        }
        close(&double(&d_table), &expected, "gradient of the table")?;
    }

    #[test]
    fn lstm_cell_and_its_gradient(rows in 1usize..5, width in 1usize..40, seed in any::<u64>()) {
        let mut random = Random::new(seed);
        let n = rows * width;
        let sums: Vec<f64> = random.vector(4 * n).iter().map(|v| v * 3.0).map(|v| f64::from(v as f32)).collect();
        let before = random.vector(n);
        let (d_hidden, d_later) = (random.vector(n), random.vector(n));
        let befores = single(&before);
        let all = everywhere(|isa| {
            let (mut gates, mut cell, mut hidden) = (single(&sums), vec![CANARY; n], vec![CANARY; n]);
            let (before, hidden_part) = (&befores[..], &mut hidden);
            lstm::forward(isa, LstmStep { gates: &mut gates, cell: &mut cell, hidden: hidden_part, before, width });
            [gates, cell, hidden].concat()
        });
        let (gates, cell, hidden) = (&all[..4 * n], &all[4 * n..5 * n], &all[5 * n..]);
        let plain = |sums: &[f64], before: &[f64]| -> (Vec<f64>, Vec<f64>) {
            let steps = sums.chunks(4 * width).zip(before.chunks(width)).map(|(s, b)| reference::lstm_cell(s, b));
            let (cells, hidden): (Vec<_>, Vec<_>) = steps.unzip();
            (cells.concat(), hidden.concat())
        };
        let (c, h) = plain(&sums, &before);
        close(&double(cell), &c, "cell")?;
        close(&double(hidden), &h, "hidden state")?;
        let found = everywhere(|isa| {
            let (mut gates, mut d_cell) = (gates.to_vec(), single(&d_later));
            let (d_hidden, before) = (&single(&d_hidden)[..], &befores[..]);
            lstm::backward(isa, LstmGradient { gates: &mut gates, d_cell: &mut d_cell, d_hidden, cell, before, width });
            [gates, d_cell].concat()
        });
        let loss = |sums: &[f64], before: &[f64]| {
            let (c, h) = plain(sums, before);
            let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
            dot(&c, &d_later) + dot(&h, &d_hidden)
        };
        for _ in 0..8 {
            let at = (random.bits() % (5 * n) as u64) as usize;
            let moved = |by: f64| {
                let (mut sums, mut before) = (sums.clone(), before.clone());
                if at < 4 * n { sums[at] += by } else { before[at - 4 * n] += by }
                loss(&sums, &before)
            };
            let slope = (moved(1e-5) - moved(-1e-5)) / 2e-5;
            prop_assert!((f64::from(found[at]) - slope).abs() < 1e-5, "{at}: {}, not {slope}", found[at]);
        }
    }
}
