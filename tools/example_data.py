#!/usr/bin/env python3
"""example_data.py - make the generated data of the examples: loans.csv and load.csv.

usage: example_data.py [--out FOLDER]     (default: examples/data beside this script's folder)

Python's own library only, seeded: every run writes the same bytes.

loans.csv, 6000 rows: was a loan paid back? The truth is a rule plus chance, and the rule is not a sum of its columns:
  - the ratio of monthly payment to monthly income matters only above about a third;
  - young and old people default more often than those between;
  - purpose and home count together: a business from a rented flat is a risk, a car for somebody who lives with the family is not;
  - regions differ, and in some of them short employment counts twice;
  - who leaves the income out (about one in fourteen) has a reason.
Employment is missing where there is none to tell.

load.csv, 17520 rows: the electric load of a small town in MW, hour by hour for two years: seasons of the year, the week and
the day, mornings and evenings that grow and shrink with the cold, weather that lasts for days, growth, and noise.
"""
import argparse
import math
import os
import random

REGIONS = ("Ashford Birchwood Clearwater Dunmore Eastvale Fairhaven Glenrock Highfield Ivybridge "
           "Kingsport Lakeside Millbrook Northgate Oakdale Pinehurst Riverton").split()
PURPOSES = "business car education holiday home medical".split()
HOMES = "family mortgage own rent".split()
TOGETHER = {("business", "rent"): 1.5, ("business", "own"): -0.7, ("car", "family"): -1.2,
            ("car", "rent"): 0.6, ("education", "family"): -1.0, ("education", "mortgage"): 0.9,
            ("holiday", "mortgage"): 1.3, ("holiday", "family"): 0.7, ("home", "rent"): 1.1,
            ("home", "own"): -0.9, ("medical", "own"): 1.2, ("medical", "rent"): -0.6}


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def loan(rng, effect, harsh):
    age = min(78, max(18, round(rng.gauss(41, 14))))
    income = round(math.exp(rng.gauss(3.55, 0.45)), 1)                # thousands a year
    amount = round(min(80, math.exp(rng.gauss(2.5, 0.7))), 1)         # thousands
    months = rng.choice((12, 24, 36, 48, 60))
    purpose, home, region = rng.choice(PURPOSES), rng.choice(HOMES), rng.choice(REGIONS)
    employed = round(rng.expovariate(0.16), 1) if rng.random() > 0.09 else None
    hidden = rng.random() < 0.07
    burden = amount * (1 + 0.004 * months) / months / (income / 12)
    z = -2.9 + 3.2 * sigmoid((burden - 0.35) * 18) - 0.2
    z += 1.1 * (age < 25) + 0.8 * (age > 62) - 0.3 * (35 < age < 50)
    z += TOGETHER.get((purpose, home), 0) + effect[region]
    z += (1.2 if region in harsh else 0.4) * (employed is None or employed < 2)
    z += 1.0 * hidden
    row = [age, "" if hidden else income, amount, months, purpose, home, region,
           "" if employed is None else employed, int(rng.random() < sigmoid(z))]
    return ",".join(str(v) for v in row)


def loans(path):
    rng = random.Random(20)
    effect = {r: rng.uniform(-0.7, 0.7) for r in REGIONS}
    harsh = set(rng.sample(REGIONS, 5))
    with open(path, "w", encoding="ascii") as f:
        f.write("age,income,amount,months,purpose,home,region,employed,defaulted\n")
        for _ in range(6000):
            f.write(loan(rng, effect, harsh) + "\n")


def load(path):
    rng = random.Random(21)
    weather, noise = 0.0, 0.0
    with open(path, "w", encoding="ascii") as f:
        f.write("hour,load\n")
        for hour in range(730 * 24):
            day, h = divmod(hour, 24)
            if h == 0:
                weather = 0.8 * weather + rng.gauss(0, 1.6)           # degrees from the season's mean
            noise = 0.85 * noise + rng.gauss(0, 0.5)
            cold = 9 * math.cos(2 * math.pi * (day - 15) / 365) + weather
            free = day % 7 >= 5
            morning = math.exp(-((h - (10 if free else 7.5)) / 2.2) ** 2) * (7 if free else 12)
            evening = math.exp(-((h - 19) / 2.8) ** 2) * 14
            night = -9 * math.exp(-((h - 3) / 3.0) ** 2)
            mw = 48 + 0.003 * day - 4 * free + (morning + evening) * (1 + 0.03 * cold) + night + 0.55 * cold + noise
            f.write(f"{hour},{mw:.2f}\n")


def main():
    p = argparse.ArgumentParser(description="make the generated data of the examples")
    p.add_argument("--out", default=os.path.join(os.path.dirname(__file__), "..", "examples", "data"))
    out = p.parse_args().out
    loans(os.path.join(out, "loans.csv"))
    load(os.path.join(out, "load.csv"))


if __name__ == "__main__":
    main()
