//! The privacy account against that of an independent program.

use fedelity_fl::Accountant;
use serde_json::Value;

/// Computed by `golden/accountant.py`.
const GOLDEN: &str = include_str!("../../../../golden/accountant.json");

/// Rounding: relative, and what is left of a 1 that the other program does not subtract first.
const CLOSE: f64 = 1e-9;
const ROUNDING: f64 = 1e-14;

#[test]
fn accounts_are_those_of_another_program() {
    let file: Value = serde_json::from_str(GOLDEN).unwrap();
    let numbers = |value: &Value| -> Vec<Option<f64>> { value.as_array().unwrap().iter().map(Value::as_f64).collect() };
    let orders = numbers(&file["orders"]);
    let (mut kinds, mut equal) = ([0, 0], 0);
    for case in file["cases"].as_array().unwrap() {
        let number = |key: &str| case[key].as_f64().unwrap();
        let whole = |key: &str| case[key].as_u64().unwrap() as usize;
        let fixed = case["kind"] == "fixed-size";
        kinds[usize::from(fixed)] += 1;
        let (noise, chosen, of) = (number("noise"), whole("chosen"), whole("of"));
        let accountant = match fixed {
            true => Accountant::fixed_size(noise, chosen, of),
            false => Accountant::poisson(noise, chosen as f64 / of as f64),
        };
        let same = |order: f64, expected: f64| {
            let (_, found) = accountant.rdp().iter().find(|(known, _)| *known == order).unwrap();
            let slack = CLOSE * expected + ROUNDING / (order - 1.0);
            assert!((found - expected).abs() <= slack, "{case}: order {order}: {found} instead of {expected}");
        };
        // Some orders are exact only by the formulas of the papers.
        let pairs = case["exact"].as_array().unwrap().iter();
        let exact: Vec<(f64, f64)> = pairs.map(|pair| (pair[0].as_f64().unwrap(), pair[1].as_f64().unwrap())).collect();
        for (order, expected) in orders.iter().zip(numbers(&case["rdp"])) {
            let order = order.unwrap();
            let expected = exact.iter().find(|(known, _)| *known == order).map(|(_, value)| *value).or(expected);
            // A sample is no worse than everyone, which the other program does not use.
            let sigma = if fixed { noise / 2.0 } else { noise };
            same(order, expected.unwrap().min(order / (2.0 * sigma * sigma)));
        }
        let (found, expected) = (accountant.epsilon(whole("rounds"), number("delta")), number("epsilon"));
        assert!(found <= expected * (1.0 + CLOSE) + 1e-12, "{case}: {found}");
        // Orders from 11 on are whole, and then all of it must be the same.
        if !fixed && number("order") >= 11.0 {
            assert!(found >= expected * (1.0 - CLOSE) - 1e-12, "{case}: {found}");
            equal += 1;
        }
    }
    assert!(kinds[0] > 50 && kinds[1] > 40 && equal > 20, "{kinds:?} {equal}");
}
